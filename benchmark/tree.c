/* tree COUNT: COUNT sleeping processes, this one included; member i has the members 10i+1 to 10i+10 below it. Prints
 * "ready" when all are there. All hold stdout, so that its end is the end of the last one. */
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
  int count = argc > 1 ? atoi(argv[1]) : 1, ready[2], member = 0;
  char byte;
  if (pipe(ready) != 0) return 1;
  alarm(60);
  for (int below = 1; below <= 10 && 10 * member + below < count; below++) {
    pid_t pid = fork();
    if (pid < 0) return 1;
    if (pid == 0) {
      alarm(60); /* not inherited */
      member = 10 * member + below;
      below = 0;
    }
  }
  if (member > 0) {
    if (write(ready[1], "", 1) != 1) return 1;
  } else {
    for (int i = 1; i < count; i++)
      if (read(ready[0], &byte, 1) != 1) return 1;
    if (write(1, "ready\n", 6) != 6) return 1;
  }
  close(ready[0]);
  close(ready[1]);
  for (;;) pause();
}
