/*
 * The guard of a helper process: PID 1 of the helper's PID namespace. It is this
 * program, before its Go runtime starts. waiter.h says what the guard does.
 */
#define _GNU_SOURCE
#include "first.h"

#include "plan.h"
#include "waiter.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The C library's fork(2) takes no flags. With unshare(2) instead, the PID namespace
 * would stay that of all later children. */
pid_t fork_into(uint32_t namespaces)
{
	return (pid_t)syscall(SYS_clone, (unsigned long)namespaces | SIGCHLD, 0, 0, 0, 0);
}

static void report(int fd, uint32_t step)
{
	struct waiter_report r = { step, (uint32_t)errno };

	while (write(fd, &r, sizeof(r)) < 0 && errno == EINTR)
		;
}

/* The report's descriptor, for fail. */
static int report_fd;

static void __attribute__((noreturn)) fail(uint32_t step)
{
	report(report_fd, step);
	_exit(127);
}

static void bad_plan(int error)
{
	errno = error;
	fail(WAITER_READ_PLAN);
}

/*
 * Joins the supervisor's mount namespace, or makes a copy of it. In the supervisor's own,
 * /proc is the pod's, where the helper does not find itself; the copy has a /proc
 * of the helper's PID namespace. No other namespace sees the copy's mounts.
 */
static void enter_mounts(int mounts, int own_mounts)
{
	if (setns(mounts, CLONE_NEWNS) < 0)
		fail(WAITER_JOIN_MOUNTS);
	if (!own_mounts)
		return;
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) < 0)
		fail(WAITER_JOIN_MOUNTS);
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		fail(WAITER_MOUNT_PROC);
}

/* Makes the descriptors from WAITER_STDIN on the helper's 0, 1, 2 and so on. All
 * others are close-on-exec. */
static void pass_files(const int *files, int nfiles)
{
	int i, copies[WAITER_FILES + WAITER_MAX_FILES] = { 0 };

	/* Out of the way first: a file may be at another's number. */
	for (i = WAITER_STDIN; i < nfiles; i++) {
		copies[i] = fcntl(files[i], F_DUPFD_CLOEXEC, 3 + WAITER_MAX_FILES);
		if (copies[i] < 0)
			fail(WAITER_PASS_FILES);
	}
	report_fd = fcntl(report_fd, F_DUPFD_CLOEXEC, 3 + WAITER_MAX_FILES);
	if (dup2(copies[WAITER_STDIN], 0) < 0 || dup2(copies[WAITER_OUTPUT], 1) < 0 || dup2(copies[WAITER_OUTPUT], 2) < 0)
		fail(WAITER_PASS_FILES);
	for (i = WAITER_FILES; i < nfiles; i++)
		if (dup2(copies[i], 3 + i - WAITER_FILES) < 0)
			fail(WAITER_PASS_FILES);
}

#define OOM_SCORE "/proc/self/oom_score_adj"

static char oom_score[16]; /* of before protect_from_oom; empty if it is not known */

static void set_oom_score(const char *score)
{
	int fd = open(OOM_SCORE, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	(void)!write(fd, score, strlen(score)); /* a value that it may not set stays */
	close(fd);
}

void protect_from_oom(void)
{
	int fd = open(OOM_SCORE, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, oom_score, sizeof(oom_score) - 1);

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return;
	oom_score[n] = 0;
	set_oom_score("-1000");
}

static void __attribute__((noreturn)) become_helper(const int *files, int nfiles, int own_mounts)
{
	const struct waiter_plan *plan;
	struct cursor rest;
	char **args, **env;

	plan = map_plan(files[WAITER_PLAN], sizeof(*plan), &rest);
	if (plan->size != (uint64_t)(rest.end - (const char *)plan) || plan->nargs == 0)
		bad_plan(EINVAL);
	args = take_strings(&rest, plan->nargs);
	env = take_strings(&rest, plan->nenv);
	setsid();
	if (oom_score[0])
		set_oom_score(oom_score);
	enter_mounts(files[WAITER_MOUNTS], own_mounts);
	pass_files(files, nfiles);
	reset_signals();
	report(report_fd, WAITER_READY);
	execve(args[0], args, env);
	fail(WAITER_EXEC);
}

/* Waits for the helper, or for the leash's end, which kills the helper. Nothing of the
 * helper's PID namespace is left when its status is in the leash. */
static void __attribute__((noreturn)) guard(pid_t helper, int leash)
{
	struct pollfd polled[] = { { KEPT_SIGNALS, POLLIN, 0 }, { leash, POLLIN, 0 } };
	struct signalfd_siginfo signal;
	int status = SIGKILL, ended = 0;
	pid_t pid;

	while (!ended) {
		if (poll(polled, sizeof(polled) / sizeof(*polled), -1) < 0 && errno != EINTR)
			_exit(1);
		while (read(KEPT_SIGNALS, &signal, sizeof(signal)) > 0)
			;
		if (polled[1].revents) { /* the supervisor never writes */
			kill(helper, SIGKILL);
			polled[1].fd = -1;
		}
		while (!ended && (pid = waitpid(-1, &status, WNOHANG)) > 0)
			ended = pid == helper;
	}
	kill(-1, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	_exit(send(leash, &status, sizeof(status), 0) < 0);
}

void start_guard(const int *files, int nfiles, int own_mounts)
{
	pid_t pid;
	int i;

	if (nfiles < WAITER_FILES) /* take_request has no room for too many */
		return; /* the supervisor sees the end of the report and of the leash */
	pid = fork_into(CLONE_NEWPID);
	if (pid < 0)
		report(files[WAITER_REPORT], WAITER_FORK);
	if (pid != 0)
		return;
	report_fd = files[WAITER_REPORT];
	/* These must end when the waiter closes them, and not later. */
	close(KEPT_CHANNEL);
	close(KEPT_READY);
	close(KEPT_LIFELINE);
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* fails for a wrong signal number alone (PR_SET_PDEATHSIG(2const)) */
	pid = fork();
	if (pid < 0)
		fail(WAITER_FORK);
	if (pid == 0)
		become_helper(files, nfiles, own_mounts);
	for (i = 0; i < nfiles; i++)
		if (i != WAITER_LEASH)
			close(files[i]);
	guard(pid, files[WAITER_LEASH]);
}
