#define _GNU_SOURCE
#include "child.h"

#include "calls.h"
#include "names.h"
#include "plan.h"
#include "privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define CLOSE_RANGE_SET_CLOEXEC 4

static int first_fd; /* of enum shim_file */

/* The descriptors of enum shim_file by name. */
static int report_fd(void) { return first_fd + SHIM_REPORT; }
static int users_fd(void) { return first_fd + SHIM_USERS; }
int shim_backing(uint32_t i) { return first_fd + SHIM_BACKING + (int)i; }
static int tree_fd(const struct shim_plan *p, uint32_t i) { return shim_backing(p->nbacking) + (int)i; }
static int mounts_fd(const struct shim_plan *p) { return tree_fd(p, p->ntrees); }
static int cgroups_fd(const struct shim_plan *p) { return mounts_fd(p) + 1; }
static int cgroup_fd(const struct shim_plan *p, uint32_t i)
{
	return cgroups_fd(p) + (p->flags & SHIM_JOIN_CGROUPS ? 1 : 0) + (int)i;
}

/* Writes the report, then exits with exec's customary exit codes. */
void __attribute__((noreturn)) shim_fail(uint32_t step, int error)
{
	struct shim_report r = { step, (uint32_t)error };

	while (write(report_fd(), &r, sizeof(r)) < 0 && errno == EINTR)
		;
	_exit(error == ENOENT || error == ENOTDIR ? 127 : 126);
}

static void bad_plan(int error)
{
	shim_fail(SHIM_READ_PLAN, error);
}

/* Room for a number in decimal. */
#define DECIMAL_SIZE 16

/*
 * Joins a running container, by the open descriptors after the trees': the mount and, where
 * the plan says so, the cgroup namespace, then the files of the cgroups. The shim resolves no path that the
 * container's processes could change.
 */
static void join(const struct shim_plan *p)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	char score[DECIMAL_SIZE];
	uint32_t i;

	snprintf(score, sizeof(score), "%d", p->oom_score_adj);
	if (fd < 0 || write(fd, score, strlen(score)) < 0)
		shim_fail(SHIM_OOM, errno);
	close(fd);
	for (i = 0; i < p->ncgroups; i++)
		if (write(cgroup_fd(p, i), "0", 1) != 1)
			shim_fail(SHIM_CGROUP, errno);
	if (setns(mounts_fd(p), CLONE_NEWNS) < 0)
		shim_fail(SHIM_MOUNTS, errno);
	if (p->flags & SHIM_JOIN_CGROUPS && setns(cgroups_fd(p), CLONE_NEWCGROUP) < 0)
		shim_fail(SHIM_CGROUPS, errno);
}

/* Joins the user namespace, with all capabilities over it, as its user 0 for files. */
static void join_users(void)
{
	if (setns(users_fd(), CLONE_NEWUSER) < 0)
		shim_fail(SHIM_USER_NAMESPACE, errno);
	syscall(SYS_setfsgid, 0);
	syscall(SYS_setfsuid, 0);
}

/* Closes what no later step needs: folders and namespaces of the supervisor. A neighbour with capabilities over the
 * user namespace could reach them between the exec and its end, which closes the rest. */
static void close_files(void)
{
	syscall(SYS_close_range, users_fd(), ~0U, 0);
}

/* Attaches the trees. A target is resolved in the container's root. A link in its last place is not followed, and a
 * target outside the mount namespace is refused (EINVAL). A volume over /sys may have no place for them. */
static void attach_trees(const struct shim_plan *p, char **targets)
{
	uint32_t i;

	for (i = 0; i < p->ntrees; i++)
		if (syscall(SYS_move_mount, tree_fd(p, i), "", AT_FDCWD, targets[i], FROM_DESCRIPTOR) < 0) {
			if (errno == ENOENT && i == 0)
				return;
			shim_fail(SHIM_TREES, errno);
		}
}

/* Restores the limit that the supervisor loses when libcontainer loads a device
 * policy on cgroup v2, see Runtime.memlock. */
static void limit_locked_memory(const struct shim_plan *p)
{
	struct rlimit limit = { p->memlock_soft, p->memlock_hard };

	if (setrlimit(RLIMIT_MEMLOCK, &limit) < 0)
		shim_fail(SHIM_LIMIT, errno);
}

/* Lowers a limit, soft and hard, to a number at most. */
static void limit_at_most(int resource, uint64_t most)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit) < 0)
		shim_fail(SHIM_LIMIT, errno);
	if (limit.rlim_cur > most)
		limit.rlim_cur = most;
	if (limit.rlim_max > most)
		limit.rlim_max = most;
	if (setrlimit(resource, &limit) < 0)
		shim_fail(SHIM_LIMIT, errno);
}

/* Makes the user the owner of the pipes and terminals at 0 to 2, so that a program
 * can open /dev/stdout again. Files and other devices keep their owners. */
static void own_stdio(uid_t uid)
{
	struct stat st;
	int fd;

	for (fd = 0; fd <= 2; fd++) {
		if (fstat(fd, &st) < 0 || st.st_uid == uid)
			continue;
		if (S_ISFIFO(st.st_mode) || isatty(fd)) {
			if (fchown(fd, uid, (gid_t)-1) < 0)
				continue; /* a terminal of another user keeps its owner */
		}
	}
}

/* Fails if the working directory is not in the container's root: the kernel then
 * puts "(unreachable)" before its path (getcwd(2)). */
static void check_directory(void)
{
	static char path[PATH_MAX];

	if (syscall(SYS_getcwd, path, sizeof(path)) < 0)
		shim_fail(SHIM_CHDIR, errno);
	if (path[0] != '/')
		shim_fail(SHIM_CHDIR, EXDEV);
}

/* Marks every descriptor from first on close-on-exec; one by one if the kernel
 * lacks close_range(2) with that flag (before 5.11). */
static void close_on_exec_from(uint32_t first)
{
	long fd, max = sysconf(_SC_OPEN_MAX);

	if (syscall(SYS_close_range, first, ~0U, CLOSE_RANGE_SET_CLOEXEC) == 0)
		return;
	for (fd = first; fd < max; fd++)
		fcntl((int)fd, F_SETFD, FD_CLOEXEC);
}

/* Returns the first candidate that is an executable file. It is called before the
 * filter is loaded, because the filter may block the report. */
static const char *find_program(char **candidates)
{
	int error = ENOENT;
	struct stat st;

	for (; *candidates; candidates++) {
		if (stat(*candidates, &st) < 0) {
			if (errno != ENOENT && errno != ENOTDIR)
				error = errno;
			continue;
		}
		if (S_ISREG(st.st_mode) && faccessat(AT_FDCWD, *candidates, X_OK, AT_EACCESS) == 0)
			return *candidates;
		error = EACCES;
	}
	shim_fail(SHIM_EXEC, error);
}

/* Returns the variable LISTEN_PID, see sd_listen_fds(3). */
static char *listen_pid(void)
{
	static char text[sizeof("LISTEN_PID=") + DECIMAL_SIZE];

	snprintf(text, sizeof(text), "LISTEN_PID=%d", getpid());
	return text;
}

/* Does what the plan says; rest is what follows the header. */
static void __attribute__((noreturn)) become_app(const struct shim_plan *p, struct cursor *rest)
{
	const uint32_t *groups = take(rest, p->ngroups, sizeof(*groups));
	const struct sock_filter *filter = take(rest, p->nfilter, sizeof(*filter));
	char **dir = take_strings(rest, 1), **profile = take_strings(rest, 1);
	char **candidates = take_strings(rest, p->ncandidates);
	char **args = take_strings(rest, p->nargs), **env = take_strings(rest, p->nenv);
	char **targets = take_strings(rest, p->ntrees);
	const char *program;
	int there;

	if (p->flags & SHIM_LISTEN_PID)
		env[p->nenv] = listen_pid();
	limit_locked_memory(p);
	limit_at_most(RLIMIT_SIGPENDING, p->sigpending);
	limit_at_most(RLIMIT_MSGQUEUE, p->msgqueue);
	if (*profile[0])
		confine(profile[0]);
	if (p->flags & SHIM_JOIN)
		join(p);
	if (p->flags & SHIM_NEW_CGROUPS && unshare(CLONE_NEWCGROUP) < 0)
		shim_fail(SHIM_CGROUPS, errno);
	attach_trees(p, targets);
	reset_signals();
	umask(022);
	close_on_exec_from(3 + p->nfds);
	if (p->flags & SHIM_OWN_STDIO)
		own_stdio(p->owner);
	if (p->flags & SHIM_JOIN_USERS)
		join_users();
	drop_bounding(p->bounding);
	if (p->flags & SHIM_LANDLOCK)
		restrict_self(p);
	close_files();
	/* As root first, then as the user: a directory can be inaccessible to either. */
	there = change_directory(dir[0], p->bounding) == 0;
	become_user(p, groups);
	if (!there && chdir(dir[0]) < 0)
		shim_fail(SHIM_CHDIR, errno);
	check_directory();
	if (p->flags & SHIM_NO_NEW_PRIVS && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		shim_fail(SHIM_NNP, errno);
	program = find_program(candidates);
	load_filter(filter, p->nfilter);
	execve(program, args, env);
	shim_fail(SHIM_EXEC, errno);
}

void shim_files(int first) { first_fd = first; }

void shim_become(void)
{
	const struct shim_plan *plan;
	struct cursor rest;

	/* The app's other processes must not read the shim while it has more privileges than they. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		shim_fail(SHIM_DUMPABLE, errno);
	plan = map_plan(first_fd + SHIM_PLAN, sizeof(*plan), &rest);
	if (plan->magic != SHIM_MAGIC || plan->size != (uint64_t)(rest.end - (const char *)plan))
		bad_plan(EINVAL);
	become_app(plan, &rest);
}

static void __attribute__((constructor)) shim(void)
{
	const char *first = getenv(SHIM_ENV);
	char *end;
	long n;

	if (first == NULL)
		return;
	n = strtol(first, &end, 10);
	if (end == first || *end || n < 3 || n > INT_MAX / 2)
		_exit(126); /* without a descriptor to report to */
	shim_files((int)n);
	shim_become();
}
