//! System calls without libc, for the code between clone and exec.
//!
//! That code shares the keeper's memory, its thread-local `errno` included, while the keeper runs on: a libc
//! wrapper that fails there would change the keeper's `errno` under it. These return the negative errno instead
//! and touch no memory of their own.
#![expect(unsafe_code, reason = "inline assembly is the only way to a system call that leaves errno alone")]

use std::arch::asm;

/// Six-argument system call.
///
/// # Safety
/// The arguments must be what the call asks for; pointers must be valid for it.
#[cfg(target_arch = "x86_64")]
pub unsafe fn syscall(number: libc::c_long, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the x86-64 convention of syscall(2): number and result in rax, rcx and r11 clobbered. The caller
    // answers for the arguments.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") args[0], in("rsi") args[1], in("rdx") args[2],
            in("r10") args[3], in("r8") args[4], in("r9") args[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Six-argument system call.
///
/// # Safety
/// The arguments must be what the call asks for; pointers must be valid for it.
#[cfg(target_arch = "aarch64")]
pub unsafe fn syscall(number: libc::c_long, args: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the AArch64 convention of syscall(2): number in x8, result in x0. The caller answers for the
    // arguments.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") args[0] => result,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack),
        );
    }
    result
}

/// A child that exits at once, or the negative errno. It has no exit signal, so that waits without `__WALL` do not see
/// it.
///
/// CLONE_VM and CLONE_VFORK: the new process runs in our memory, on our stack, while we are suspended; so it
/// must do nothing but exit, and that is the next instruction, in the same assembly (clone(2)).
#[cfg(target_arch = "x86_64")]
pub fn pin() -> isize {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    let result: isize;
    // SAFETY: the child executes exit(0) before it touches memory, and no handler runs in it, since every signal is
    // blocked (become_mode); we see only the parent's return.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "2:",
            exit = const libc::SYS_exit,
            inlateout("rax") libc::SYS_clone as isize => result,
            inlateout("rdi") flags as usize => _,
            in("rsi") 0, in("rdx") 0, in("r10") 0, in("r8") 0,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}

/// A child that exits at once, or the negative errno. See the x86-64 version.
#[cfg(target_arch = "aarch64")]
pub fn pin() -> isize {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    let result: isize;
    // SAFETY: the child executes exit(0) before it touches memory, and no handler runs in it, since every signal is
    // blocked (become_mode); we see only the parent's return.
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x8, {exit}",
            "svc 0",
            "2:",
            exit = const libc::SYS_exit,
            inlateout("x8") libc::SYS_clone => _,
            inlateout("x0") flags as usize => result,
            in("x1") 0, in("x2") 0, in("x3") 0, in("x4") 0,
        );
    }
    result
}

/// Sets a signal to SIG_DFL or SIG_IGN, whichever it is: libc refuses the two that it keeps for itself, and
/// posix_spawn(3) leaves those ignored. The negative of the errno is not negative here.
pub fn set_disposition(signal: i32, disposition: libc::sighandler_t) -> Result<(), i32> {
    // The kernel's struct sigaction begins with the handler, on both architectures. No flags, no mask.
    let action = [disposition as u64, 0, 0, 0];
    // SAFETY: a valid struct to read, none to write; eight bytes is the kernel's size of a signal set.
    let result =
        unsafe { syscall(libc::SYS_rt_sigaction, [signal as usize, action.as_ptr() as usize, 0, 8, 0, 0]) };
    if result < 0 { Err(-result as i32) } else { Ok(()) }
}
