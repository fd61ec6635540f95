#!/bin/sh
# The conformance table where this machine is another one. Run as root in a checkout, after npm run release:pack:
#   scripts/elsewhere.sh musl BUN       Bun for musl (@oven/bun-linux-x64-musl) in a root without glibc
#   scripts/elsewhere.sh glibc ROOT NODE  in a root with an old glibc, made by debootstrap
#   scripts/elsewhere.sh arm64 NODE     Node.js for arm64 under qemu
#   scripts/elsewhere.sh loader ADDON   the addon, all symbols bound, by the loader of glibc 2.17: no Node.js of today runs there
# Debian: musl-tools busybox-static; debootstrap; qemu-user-static libc6:arm64 libstdc++6:arm64 libatomic1:arm64.
# Everything is mounted in a mount namespace of its own, and gone with it.
set -eu
mode=$1
if [ "${HOLDFAST_ELSEWHERE:-}" = "" ]; then
  case $mode in
    arm64) exec env HOLDFAST_ELSEWHERE=1 unshare --user --map-root-user --mount "$0" "$@" ;;
    *) exec env HOLDFAST_ELSEWHERE=1 unshare --mount "$0" "$@" ;;
  esac
fi
here=$(dirname "$(readlink -f "$0")")
run() {
  name=$1 platform=$2 command=$3
  node "$here/matrix.mjs" --platform "$platform" --command "$name=$command" ${PACKAGES:+--packages "$PACKAGES"}
}

# A program of this name is in the root, and outside of it, where it enters the root.
enter() {
  root=$1
  mount -t tmpfs none /usr/local/bin
  for folder in proc dev tmp; do
    mkdir -p "$root/$folder"
    mount --rbind "/$folder" "$root/$folder"
  done
  mkdir -p "$root/usr/local/bin"
  printf '#!/bin/sh\nexec chroot %s /bin/sh -c '"'"'cd "$0" && exec runtime "$@"'"'"' "$PWD" "$@"\n' "$root" > /usr/local/bin/runtime
  chmod +x /usr/local/bin/runtime
}

case $mode in
  loader)
    tools=$here/../target/release-tools/node_modules/@napi-rs/cross-toolchain-x64-target-x86_64
    system=$tools/x86_64-unknown-linux-gnu/sysroot
    mount -t tmpfs none /mnt
    nm -D "$2" | awk '$1 == "U" && $2 ~ /^(napi|node_api)_/ { print "int " $2 "(void) { return 0; }" }' > /mnt/stubs.c
    cat > /mnt/main.c <<'C'
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <stdio.h>
int main(int count, char **words) {
  void *addon = dlopen(words[1], RTLD_NOW);
  if (addon != NULL && dlsym(addon, "napi_register_module_v1") != NULL) {
    printf("glibc %s: loaded\n", gnu_get_libc_version());
    return 0;
  }
  printf("glibc %s: %s\n", gnu_get_libc_version(), dlerror());
  return 1;
}
C
    "$tools/bin/x86_64-unknown-linux-gnu-gcc" -rdynamic /mnt/main.c /mnt/stubs.c -o /mnt/harness -ldl
    exec "$system/lib/ld-2.17.so" --library-path "$system/lib" /mnt/harness "$(readlink -f "$2")"
    ;;
  arm64)
    mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
    printf '%s' ':qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64-static:F' > /proc/sys/fs/binfmt_misc/register
    run "arm64, by qemu, $("$2" --version)" linux-arm64-gnu "$2"
    ;;
  glibc)
    node_path=$(command -v node)
    enter "$2"
    ln -sf "$node_path" /usr/local/bin/node
    cp "$3" "$2/usr/local/bin/runtime"
    version=$(chroot "$2" /bin/sh -c 'ldd --version' | sed -n '1s/.* //p')
    run "glibc $version" linux-x64-gnu runtime
    ;;
  musl)
    node_path=$(command -v node)
    mount -t tmpfs none /mnt
    root=/mnt
    mkdir -p "$root/bin" "$root/lib" "$root/usr/lib" "$root/opt"
    cp "$(command -v busybox)" "$root/bin/busybox"
    chroot "$root" /bin/busybox --install -s /bin
    cp -L /usr/lib/x86_64-linux-musl/libc.so "$root/lib/ld-musl-x86_64.so.1"
    for name in libc.musl-x86_64.so.1 libc.so.6 libm.so.6 ld-linux-x86-64.so.2; do
      ln -s ld-musl-x86_64.so.1 "$root/lib/$name"
    done
    # A C++ library for musl is not in Debian. That for glibc needs this little besides.
    cp -L /usr/lib/x86_64-linux-gnu/libstdc++.so.6 /lib/x86_64-linux-gnu/libgcc_s.so.1 "$root/lib/"
    cat > "$root/shim.c" <<'C'
#include <locale.h>
#include <sys/random.h>
#include <time.h>
char __libc_single_threaded = 0;
struct { unsigned vendor, type, subtype, features; } __cpu_model;
int __cpu_indicator_init(void) { return 0; }
int __cxa_thread_atexit_impl(void (*end)(void *), void *object, void *library) { return 0; }
size_t __strftime_l(char *to, size_t size, const char *format, const struct tm *time, locale_t locale) {
  return strftime(to, size, format, time);
}
unsigned arc4random(void) {
  unsigned value;
  getrandom(&value, sizeof value, 0);
  return value;
}
C
    musl-gcc -shared -fPIC "$root/shim.c" "$here/release/find-object.c" -o "$root/lib/libshim.so"
    cp "$2" "$root/opt/bun"
    enter "$root"
    ln -sf "$node_path" /usr/local/bin/node
    printf '#!/bin/sh\nLD_PRELOAD=/lib/libshim.so exec /opt/bun "$@"\n' > "$root/usr/local/bin/runtime"
    chmod +x "$root/usr/local/bin/runtime"
    mkdir -p "$root/etc" && echo /lib > "$root/etc/ld-musl-x86_64.path"
    run "musl, Bun" linux-x64-musl runtime
    ;;
esac
