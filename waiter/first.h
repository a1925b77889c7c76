/* What the C files of the stager's first process share. */
#ifndef STAGER_FIRST_H
#define STAGER_FIRST_H

#include <signal.h>
#include <stdint.h>
#include <sys/types.h>

/* The waiter makes its descriptors from here on: 3 and 4 may be the daemon's. */
#define FIRST_DESCRIPTOR 10

/* The descriptors that the waiter keeps, in addition to stdio, while it waits. All are close-on-exec. */
enum kept {
	KEPT_CHANNEL = 3, /* to the supervisor, see waiter.h */
	KEPT_SIGNALS,     /* a signalfd */
	KEPT_READY,       /* the daemon's ready pipe, until the pod is up */
	KEPT_LIFELINE,    /* see lifeline.c; not with the host's PID namespace */
	KEPT_PIDS,        /* the pod's PID namespace, likewise */
	KEPT_END,
};

/* Ends the process with a message that says what failed, and why, by errno; in first.c. */
void give_up(const char *what) __attribute__((noreturn));

/* Moves a descriptor to FIRST_DESCRIPTOR or above; in first.c. */
int move_up(int fd);

/* Closes all descriptors from first to last, also on a kernel without close_range(2); in first.c. */
void close_between(int first, int last);

/* Returns the namespaces that the pod seems to need, as in clone(2): those of a pod by default (the daemon makes the
 * network namespace) without those for which the manifest's text says "host". After a wrong guess the supervisor is
 * started twice, which costs 6 ms; in guess.c. */
uint32_t guess_namespaces(void);

/* Starts this program again, as the supervisor, in new namespaces (as in clone(2)) and with the daemon's signal mask.
 * Returns the waiter's end of the supervisor's channel; in supervisor.c. */
int fork_supervisor(uint32_t namespaces, const sigset_t *daemons, pid_t *supervisor);

/* Enters the waiter's cgroup, in enter.c. */
void enter_leaf(void);

/* Makes the supervisor's mount namespace and enters it, in enter.c. */
void enter_mount_namespace(void);

/* Forks into new namespaces, as in clone(2); in guard.c. */
pid_t fork_into(uint32_t namespaces);

/* Makes this process the OOM killer's last choice, if it may: the waiter's end is the pod's. A helper has the
 * value of before again. In guard.c. */
void protect_from_oom(void);

/* Starts a helper with the descriptors of enum waiter_file, nfiles in all. The caller
 * closes them. Whatever fails is reported on the descriptor WAITER_REPORT. In guard.c. */
void start_guard(const int *files, int nfiles, int own_mounts);

/* Sends SIGKILL to all children. Returns 0 if the kernel does not list them; in waiter.c. */
int kill_all(void);

/* Kills the waiter's children and the pod's PID namespace, to which the later children belong. An app can kill or stop
 * the process that does it: the waiter calls this again until the supervisor has ended. In lifeline.c. */
void kill_pod(void);

#endif
