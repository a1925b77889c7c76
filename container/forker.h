/*
 * The thread that forks the children of the direct runtime; forker.c says why it is a thread of its own.
 */
#ifndef STAGER_FORKER_H
#define STAGER_FORKER_H

#include <stdint.h>

struct forker;

/*
 * Starts the thread, in a mount namespace, of which the caller keeps the descriptor. Returns NULL with errno if it
 * cannot.
 */
struct forker *forker_new(int mounts);

/* Returns an address in the thread's stack, where its children run. */
uintptr_t forker_stack(const struct forker *f);

/*
 * Forks a child with the plan, see direct_fork; the numbers of files and of the cgroup, -1 for none, are the caller's.
 * Returns the child's number, or -errno of the system call that it names then. One call at a time.
 */
int forker_fork(struct forker *f, void *plan, int cgroup, const char **call);

/* Returns 0 if the kernel has the newest of the system calls that a child needs, and clone3(2), which a container's
 * filter may deny; otherwise an errno. */
int forker_missing(void);

/* Ends the thread, and frees f. */
void forker_stop(struct forker *f);

#endif
