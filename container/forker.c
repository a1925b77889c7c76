/*
 * The thread that forks the children of the direct runtime.
 *
 * A fork copies all descriptors of the thread that calls it, and a child may not run for long: an app stops it, its
 * cgroup is frozen, or has used up its share of the processors. A pipe of the supervisor would stay open in that child,
 * and other starts, commands and readers wait for its end. close(2) can also wait for ever, for the server of a FUSE
 * file system (fuse_flush). So a child has only its own descriptors: this thread has a separate descriptor table, with
 * the next child's descriptors alone.
 *
 *	caller (Go)            thread                                    child
 *	forker_fork() ───────► copies the plan's files from the caller's
 *	                       table: 0, 1, 2 … (pidfd_getfd(2))
 *	                       direct_fork(): clone3(2) ───────────────► has these files
 *	              ◄─────── closes them
 *
 * A child with mounts of its own begins with a copy of the thread's mount namespace. The supervisor's has a root for
 * each app, which each start would copy, walk and unmount. So the thread is in a namespace with /proc alone.
 *
 * It is C, because the Go runtime takes its own descriptors to be those of each of its threads (netpoll). It ends with
 * the runtime and not before, and blocks signals.
 */
#define _GNU_SOURCE
#include "forker.h"

#include "calls.h"
#include "direct.h"
#include "thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

#define UNSHARE 2 /* CLOSE_RANGE_UNSHARE */

struct forker {
	pthread_t thread;
	uintptr_t stack;
	int mounts; /* its mount namespace */
	int self; /* a pidfd of this process, the one descriptor that stays in the thread's table */
	sem_t asked, answered;
	struct direct_plan *plan; /* what is asked for; NULL ends the thread */
	int cgroup;
	int result; /* the answer */
	const char *call;
};

static void await(sem_t *s)
{
	while (sem_wait(s) < 0 && errno == EINTR)
		;
}

/* Takes the thread into the mount namespace. */
static int leave_mounts(const struct forker *f)
{
	return unshare(CLONE_FS) < 0 || setns(f->mounts, CLONE_NEWNS) < 0 ? -errno : 0;
}

/* Gives the thread an empty table, and opens the process, from which it copies. */
static int leave_table(struct forker *f)
{
	if (syscall(SYS_close_range, 0, ~0U, UNSHARE) < 0)
		return -errno;
	f->self = (int)syscall(SYS_pidfd_open, getpid(), 0);
	return f->self < 0 ? -errno : 0;
}

/* Copies n files, which become 0, 1, 2 and so on, then the cgroup's folder. Returns 0 or -errno. */
static int copy_files(struct forker *f, const int32_t *files, int n)
{
	int i;

	if (f->self < n) { /* it is in the way */
		int moved = fcntl(f->self, F_DUPFD_CLOEXEC, n);

		if (moved < 0)
			return -errno;
		close(f->self);
		f->self = moved;
	}
	for (i = 0; i < n; i++) /* each gets the lowest number */
		if (syscall(SYS_pidfd_getfd, f->self, files[i], 0) < 0)
			return -errno;
	if (f->cgroup < 0)
		return 0;
	f->cgroup = (int)syscall(SYS_pidfd_getfd, f->self, f->cgroup, 0);
	return f->cgroup < 0 ? -errno : 0;
}

/* Forks into the plan's PID namespace. Only the thread's next children are in it, not the thread. */
static int fork_child(struct forker *f)
{
	int result;

	f->call = "setns";
	if (f->plan->pids && setns((int)f->plan->pids, CLONE_NEWPID) < 0)
		return -errno;
	f->call = "clone3";
	result = direct_fork(f->plan, f->cgroup);
	if (f->plan->pids && setns(f->self, CLONE_NEWPID) < 0)
		abort(); /* the next child would be in another container's namespace */
	return result;
}

static void answer(struct forker *f)
{
	f->call = "pidfd_getfd";
	f->result = copy_files(f, (const int32_t *)(f->plan + 1), (int)f->plan->nfiles);
	if (f->result == 0)
		f->result = fork_child(f);
	if (f->self > 0)
		syscall(SYS_close_range, 0, f->self - 1, 0);
	syscall(SYS_close_range, f->self + 1, ~0U, 0);
}

static void *serve(void *argument)
{
	struct forker *f = argument;
	f->stack = (uintptr_t)__builtin_frame_address(0);
	f->result = leave_mounts(f);
	if (f->result == 0)
		f->result = leave_table(f);
	for (;;) {
		sem_post(&f->answered);
		await(&f->asked);
		if (f->plan == NULL)
			return NULL;
		answer(f);
	}
}

static int start(struct forker *f)
{
	int error = start_thread(&f->thread, serve, f);

	if (error)
		return error;
	await(&f->answered);
	return 0;
}

struct forker *forker_new(int mounts)
{
	struct forker *f = calloc(1, sizeof(*f));
	int error;

	if (f == NULL)
		return NULL;
	f->mounts = mounts;
	sem_init(&f->asked, 0, 0);
	sem_init(&f->answered, 0, 0);
	error = start(f);
	if (error) {
		free(f);
	} else if (f->result < 0) {
		error = -f->result;
		forker_stop(f);
	}
	errno = error;
	return error ? NULL : f;
}

uintptr_t forker_stack(const struct forker *f) { return f->stack; }

int forker_fork(struct forker *f, void *plan, int cgroup, const char **call)
{
	f->plan = plan;
	f->cgroup = cgroup;
	sem_post(&f->asked);
	await(&f->answered);
	*call = f->call;
	return f->result;
}

void forker_stop(struct forker *f)
{
	f->plan = NULL;
	sem_post(&f->asked);
	pthread_join(f->thread, NULL);
	free(f);
}

int forker_missing(void)
{
	/* Each call is an error; ENOSYS or EPERM says that there is none. */
	static const long calls[] = {
		SYS_clone3, SYS_close_range, SYS_openat2, SYS_open_tree, SYS_move_mount, SYS_mount_setattr, SYS_pidfd_open,
		SYS_pidfd_getfd,
	};
	size_t i;

	for (i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		errno = 0;
		syscall(calls[i], calls[i] == SYS_close_range ? 1 : -1, 0, calls[i] == SYS_close_range ? ~0U : 0, 0, 0);
		if (errno == ENOSYS || errno == EPERM)
			return errno;
	}
	return 0;
}
