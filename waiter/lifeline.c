/*
 * The lifeline, by which the pod ends with the supervisor and with the waiter although the supervisor cannot end.
 *
 * The kernel closes the descriptors of a process that is killed before it kills the PID namespace of which the process
 * is PID 1 (do_exit in kernel/exit.c). An app can hold that up: sendfile(2) and splice(2) lock the pipe into which
 * they copy while the source, such as an idle terminal, has nothing, and to close the supervisor's end of that pipe
 * takes the same lock. All apps would live on, and the supervisor could not be waited for.
 *
 *	waiter                                     supervisor
 *	   end of file: kill_pod() ◄───────────────  the thread that has the other end is gone
 *	   is gone ──────────────────────────────►  end of file: the thread kills the pod
 *
 * The thread's descriptor table has nothing but the lifeline's end, so nothing delays that end's close.
 *
 * SIGKILL as the supervisor's PR_SET_PDEATHSIG would not do: it would end the thread before it has killed the apps.
 */
#define _GNU_SOURCE
#include "first.h"
#include "thread.h"
#include "waiter.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

/* Leaves the process's descriptor table for one with the end alone. Returns an errno, or 0. */
static int leave_table(int end)
{
	if (unshare(CLONE_FILES) < 0)
		return errno;
	close_between(0, end - 1);
	close_between(end + 1, INT_MAX);
	return 0;
}

/* Waits for the thread's report, or in the thread for the waiter's end. */
static void await(int end, int *error)
{
	while (read(end, error, sizeof(*error)) < 0 && errno == EINTR)
		;
}

/* The thread. It reports an errno, or 0 and then nothing more. */
static void *hold(void *argument)
{
	int end = (int)(intptr_t)argument, error = leave_table(end);

	(void)!write(end, &error, sizeof(error)); /* there is room for it */
	if (error)
		return NULL;
	await(end, &error);
	if (getpid() == 1) /* else -1 would be the host's processes */
		kill(-1, SIGKILL);
	_exit(1);
}

int lifeline_start(void)
{
	int ends[2], error;
	pthread_t thread;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return -1;
	error = start_thread(&thread, hold, (void *)(intptr_t)ends[1]);
	if (error == 0) {
		pthread_detach(thread);
		await(ends[0], &error);
	}
	close(ends[1]);
	if (error == 0)
		return ends[0];
	close(ends[0]);
	errno = error;
	return -1;
}

void kill_pod(void)
{
	kill_all(); /* the process of an earlier call: an app can stop it */
	/* After an error of fork(2) the kernel kills the namespace itself, which takes no more processes, or the next call
	 * tries again, as at a limit of the cgroup around. */
	if (setns(KEPT_PIDS, CLONE_NEWPID) < 0 || fork() != 0)
		return;
	/* PID 1 is not killed, nor is this process. The parent of a process in another PID namespace is 0. */
	if (getppid() == 0)
		kill(-1, SIGKILL);
	_exit(0);
}
