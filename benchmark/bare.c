/* The least that the kernel asks for, as the other side of a ratio. Times are printed in milliseconds.
 *   bare loop COUNT WIDTH         vfork, exec /bin/true, wait; WIDTH at a time
 *   bare tree COUNT               COUNT children in one group: killpg, then wait until ECHILD
 *   bare sleepers COUNT PROGRAM   starts them, prints "ready", ends them when stdin ends */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static pid_t start(char *const argv[], int with_session) {
  pid_t pid = vfork();
  if (pid == 0) {
    if (with_session) setsid();
    execv(argv[0], argv);
    _exit(127);
  }
  if (pid < 0) exit(1);
  return pid;
}

static void loop(int count, int width) {
  char *argv[] = {"/bin/true", NULL};
  int started = 0, live = 0;
  double begin = now();
  while (started < count || live > 0) {
    for (; live < width && started < count; live++, started++) start(argv, 0);
    if (wait(NULL) > 0) live--;
  }
  printf("%f\n", now() - begin);
}

static void tree(int count) {
  int ready[2];
  pid_t leader = 0;
  if (pipe(ready) != 0) exit(1);
  for (int i = 0; i < count; i++) {
    pid_t pid = fork();
    if (pid < 0) exit(1);
    if (pid == 0) {
      alarm(60);
      if (setpgid(0, leader) != 0 || write(ready[1], "", 1) != 1) _exit(1);
      for (;;) pause();
    }
    if (leader == 0) {
      leader = pid;
      setpgid(leader, leader);
    }
  }
  char byte;
  for (int i = 0; i < count; i++)
    if (read(ready[0], &byte, 1) != 1) exit(1);
  double begin = now();
  killpg(leader, SIGKILL);
  while (wait(NULL) > 0 || errno == EINTR) continue;
  printf("%f\n", now() - begin);
}

static void sleepers(int count, char *program) {
  char *argv[] = {program, "1", NULL}, byte;
  pid_t *pids = calloc(count, sizeof *pids);
  int terminal = dup(1), null = open("/dev/null", O_RDWR);
  fcntl(terminal, F_SETFD, FD_CLOEXEC);
  int stdin_copy = fcntl(0, F_DUPFD_CLOEXEC, 3);
  for (int fd = 0; fd < 3; fd++) dup2(null, fd);
  close(null);
  for (int i = 0; i < count; i++) pids[i] = start(argv, 1);
  if (write(terminal, "ready\n", 6) != 6) exit(1);
  while (read(stdin_copy, &byte, 1) > 0) continue;
  /* Each is our own child and not reaped yet. */
  for (int i = 0; i < count; i++) kill(pids[i], SIGKILL);
  while (wait(NULL) > 0 || errno == EINTR) continue;
}

int main(int argc, char **argv) {
  alarm(120);
  if (argc == 4 && strcmp(argv[1], "loop") == 0) loop(atoi(argv[2]), atoi(argv[3]));
  else if (argc == 3 && strcmp(argv[1], "tree") == 0) tree(atoi(argv[2]));
  else if (argc == 4 && strcmp(argv[1], "sleepers") == 0) sleepers(atoi(argv[2]), argv[3]);
  else return 64;
  return 0;
}
