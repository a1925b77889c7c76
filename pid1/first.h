/* What the C files of the stager's first process share. */
#ifndef STAGER_FIRST_H
#define STAGER_FIRST_H

#include "init.h"

#include <stdint.h>
#include <sys/types.h>

/* The first process makes its descriptors from here on: 3 and 4 may be the daemon's. */
#define FIRST_DESCRIPTOR 10

/* Ends the process with a message that says what failed, and why, by errno. */
void give_up(const char *what) __attribute__((noreturn));

/* Starts the lifeline's thread, and forks the seed, the process that makes init. Returns the supervisor's end of init's
 * channel, or -1 with errno. */
int first_start(pid_t *seed);

/* Returns what first_start has returned before the Go runtime; -1 if this process is no stager. */
int first_channel(pid_t *seed);

/* Closes all descriptors from first to last, also on a kernel without close_range(2). */
void close_between(int first, int last);

/* Enters the stager's cgroup, in enter.c. */
void enter_leaf(void);

/* Makes the supervisor's mount namespace and enters it, in enter.c. */
void enter_mount_namespace(void);

/* Receives a message and up to n descriptors, which are close-on-exec. Returns the number of descriptors, or -1 at the
 * channel's end. Unused places of files stay as they are. In channel.c. */
int init_receive(int channel, struct init_message *m, int *files, int n);

/* Sends a message, and returns 0. It waits until there is room and memory, and returns -1 at the channel's end or the
 * lifeline's. In channel.c. */
int init_send(int channel, int lifeline, const struct init_message *m);

/* Reports a child with its pidfd and its number, which the kernel translates to the supervisor's PID namespace; as
 * init_send. */
void init_send_started(int channel, int lifeline, pid_t pid, int pidfd);

#endif
