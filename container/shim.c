#define _GNU_SOURCE
#include "shim.h"

#include "names.h"
#include "plan.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* From linux/landlock.h (5.13, REFER 5.19); Debian 12's headers have only a part of it. */
#ifndef __NR_landlock_create_ruleset
#define __NR_landlock_create_ruleset 444
#define __NR_landlock_add_rule 445
#define __NR_landlock_restrict_self 446
#endif
#ifndef __NR_close_range
#define __NR_close_range 436
#endif
#ifndef __NR_move_mount
#define __NR_move_mount 429
#endif
#define MOVE_FROM_DESCRIPTOR 4 /* MOVE_MOUNT_F_EMPTY_PATH of linux/mount.h, which cannot be included beside sys/mount.h */
#define LANDLOCK_REFER (1ULL << 13)
#define LANDLOCK_PATH_BENEATH 1
#define CLOSE_RANGE_SET_CLOEXEC 4

struct landlock_ruleset { uint64_t handled_access_fs; };
struct landlock_path_beneath {
	uint64_t allowed_access;
	int32_t parent_fd;
} __attribute__((packed));

static int first_fd; /* of enum shim_file */

/* The descriptors of enum shim_file by name. */
static int report_fd(void) { return first_fd + SHIM_REPORT; }
static int backing_fd(uint32_t i) { return first_fd + SHIM_BACKING + (int)i; }
static int tree_fd(const struct shim_plan *p, uint32_t i) { return backing_fd(p->nbacking) + (int)i; }
static int mounts_fd(const struct shim_plan *p) { return tree_fd(p, p->ntrees); }
static int cgroups_fd(const struct shim_plan *p) { return mounts_fd(p) + 1; }
static int cgroup_fd(const struct shim_plan *p, uint32_t i)
{
	return cgroups_fd(p) + (p->flags & SHIM_JOIN_CGROUPS ? 1 : 0) + (int)i;
}

/* Writes the report, then exits with exec's customary exit codes. */
static void __attribute__((noreturn)) fail(uint32_t step, int error)
{
	struct shim_report r = { step, (uint32_t)error };

	while (write(report_fd(), &r, sizeof(r)) < 0 && errno == EINTR)
		;
	_exit(error == ENOENT || error == ENOTDIR ? 127 : 126);
}

static void bad_plan(int error)
{
	fail(SHIM_READ_PLAN, error);
}

/*
 * Joins a running container, by the open descriptors after the trees': the mount and, where
 * the plan says so, the cgroup namespace, then the files of the cgroups. The shim resolves no path that the
 * container's processes could change.
 */
static void join(const struct shim_plan *p)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	uint32_t i;

	if (fd < 0 || dprintf(fd, "%d", p->oom_score_adj) < 0)
		fail(SHIM_OOM, errno);
	close(fd);
	for (i = 0; i < p->ncgroups; i++)
		if (write(cgroup_fd(p, i), "0", 1) != 1)
			fail(SHIM_CGROUP, errno);
	if (setns(mounts_fd(p), CLONE_NEWNS) < 0)
		fail(SHIM_MOUNTS, errno);
	if (p->flags & SHIM_JOIN_CGROUPS && setns(cgroups_fd(p), CLONE_NEWCGROUP) < 0)
		fail(SHIM_CGROUPS, errno);
}

/* Attaches the trees. A target is resolved in the container's root. A link in its last place is not followed, and what is
 * not in the mount namespace is refused (move_mount(2), EINVAL). A volume over /sys may have no place for them. */
static void attach_trees(const struct shim_plan *p, char **targets)
{
	uint32_t i;

	for (i = 0; i < p->ntrees; i++)
		if (syscall(__NR_move_mount, tree_fd(p, i), "", AT_FDCWD, targets[i], MOVE_FROM_DESCRIPTOR) < 0) {
			if (errno == ENOENT && i == 0)
				return;
			fail(SHIM_TREES, errno);
		}
}

/* Restores the limit that the supervisor loses when libcontainer loads a device
 * policy on cgroup v2, see Runtime.memlock. */
static void limit_locked_memory(const struct shim_plan *p)
{
	struct rlimit limit = { p->memlock_soft, p->memlock_hard };

	if (setrlimit(RLIMIT_MEMLOCK, &limit) < 0)
		fail(SHIM_LIMIT, errno);
}

/* Lowers a limit, soft and hard, to a number at most. */
static void limit_at_most(int resource, uint64_t most)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit) < 0)
		fail(SHIM_LIMIT, errno);
	if (limit.rlim_cur > most)
		limit.rlim_cur = most;
	if (limit.rlim_max > most)
		limit.rlim_max = most;
	if (setrlimit(resource, &limit) < 0)
		fail(SHIM_LIMIT, errno);
}

/* Sets the AppArmor profile for the next exec, which is the app's; a profile need
 * not allow what the shim does. Call it before join(), while /proc is the
 * supervisor's. */
static void confine(const char *profile)
{
	int fd = open("/proc/self/attr/apparmor/exec", O_WRONLY | O_CLOEXEC);

	if (fd < 0) /* before 5.1 */
		fd = open("/proc/self/attr/exec", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || dprintf(fd, "exec %s", profile) < 0)
		fail(SHIM_PROFILE, errno);
	close(fd);
}

/* Drops every capability that is not in keep. prctl(2) returns EINVAL for the
 * first number that the kernel does not know. */
static void drop_bounding(uint64_t keep)
{
	int c;

	for (c = 0; c < 64; c++) {
		if (keep >> c & 1)
			continue;
		if (prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0) {
			if (errno == EINVAL)
				return;
			fail(SHIM_BOUNDING, errno);
		}
	}
}

/* Adds a rule that allows renames and links below a folder. */
static void allow_refer(int ruleset, int folder)
{
	struct landlock_path_beneath rule = { LANDLOCK_REFER, folder };

	if (syscall(__NR_landlock_add_rule, ruleset, LANDLOCK_PATH_BENEATH, &rule, 0) < 0)
		fail(SHIM_RESTRICT, errno);
}

/*
 * Enters a new Landlock domain, so that this process and its descendants can
 * neither ptrace processes outside the domain nor follow their
 * /proc/PID/{root,cwd,fd,mem,environ}. The domain handles one right, REFER, and
 * allows it below the root and the backing folders, because a domain without it
 * denies renames and links between directories (landlock(7)). aufs renames files
 * in its branches, which are outside the root, with the app's credentials. The
 * domain also denies mount(2).
 */
static void restrict_self(const struct shim_plan *p)
{
	struct landlock_ruleset rs = { LANDLOCK_REFER };
	int fd = (int)syscall(__NR_landlock_create_ruleset, &rs, sizeof(rs), 0);
	int root = open("/", O_PATH | O_CLOEXEC);
	uint32_t i;

	if (fd < 0)
		fail(SHIM_RESTRICT, errno);
	allow_refer(fd, root); /* fails without a root */
	for (i = 0; i < p->nbacking; i++)
		allow_refer(fd, backing_fd(i));
	if (syscall(__NR_landlock_restrict_self, fd, 0) < 0)
		fail(SHIM_RESTRICT, errno);
	close(root);
	close(fd);
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

/* Sets the capabilities of this process. */
static void set_capabilities(const struct __user_cap_data_struct *d)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };

	if (syscall(SYS_capset, &h, d) < 0)
		fail(SHIM_CAPABILITIES, errno);
}

/*
 * Becomes the user, and keeps only the capability that loading a filter needs: the
 * filter comes last, so CAP_SYS_ADMIN must survive setuid(2). The exec drops it: a
 * program without file capabilities has none if the user is not root, and the
 * bounding set if the user is root (capabilities(7)).
 */
static void become_user(const struct shim_plan *p, const uint32_t *groups)
{
	struct __user_cap_data_struct d[2];
	uint64_t caps = 1ULL << CAP_SYS_ADMIN;

	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
		fail(SHIM_CAPABILITIES, errno);
	if (setgroups(p->ngroups, groups) < 0 || setresgid(p->gid, p->gid, p->gid) < 0)
		fail(SHIM_GROUPS, errno);
	if (setresuid(p->uid, p->uid, p->uid) < 0)
		fail(SHIM_USER, errno);
	if (p->uid == 0)
		caps |= p->bounding;
	d[0].permitted = d[0].effective = (uint32_t)caps;
	d[1].permitted = d[1].effective = (uint32_t)(caps >> 32);
	d[0].inheritable = d[1].inheritable = 0;
	set_capabilities(d);
}

/*
 * Changes to the working directory, as the container's root user. dir can be a link
 * of the app to /proc/1/root. Following a link of /proc requires the effective
 * capabilities of the process that it leads to (ptrace(2)), and until here the shim
 * may have all capabilities of the supervisor; without them the link fails. Returns
 * 0, or the error.
 */
static int change_directory(const char *dir, uint64_t effective)
{
	struct __user_cap_header_struct h = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct all[2], d[2];
	int error;

	if (syscall(SYS_capget, &h, all) < 0)
		fail(SHIM_CAPABILITIES, errno);
	memcpy(d, all, sizeof(d));
	d[0].effective &= (uint32_t)effective;
	d[1].effective &= (uint32_t)(effective >> 32);
	set_capabilities(d);
	error = chdir(dir) < 0 ? errno : 0;
	set_capabilities(all);
	return error;
}

/* Fails if the working directory is not in the container's root: the kernel then
 * puts "(unreachable)" before its path (getcwd(2)). */
static void check_directory(void)
{
	static char path[PATH_MAX];

	if (syscall(SYS_getcwd, path, sizeof(path)) < 0)
		fail(SHIM_CHDIR, errno);
	if (path[0] != '/')
		fail(SHIM_CHDIR, EXDEV);
}

/* Marks every descriptor from first on close-on-exec; one by one if the kernel
 * lacks close_range(2) with that flag (before 5.11). */
static void close_on_exec_from(uint32_t first)
{
	long fd, max = sysconf(_SC_OPEN_MAX);

	if (syscall(__NR_close_range, first, ~0U, CLOSE_RANGE_SET_CLOEXEC) == 0)
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
	fail(SHIM_EXEC, error);
}

static void load_filter(const struct sock_filter *filter, uint32_t n)
{
	struct sock_fprog prog = { (unsigned short)n, (struct sock_filter *)filter };

	if (n && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
		fail(SHIM_FILTER, errno);
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
	static char listen_pid[32];
	const char *program;
	int there;

	if (p->flags & SHIM_LISTEN_PID) {
		int n = snprintf(listen_pid, sizeof(listen_pid), "LISTEN_PID=%d", getpid());

		if (n < 0 || (size_t)n >= sizeof(listen_pid))
			fail(SHIM_READ_PLAN, EOVERFLOW);
		env[p->nenv] = listen_pid;
	}
	limit_locked_memory(p);
	limit_at_most(RLIMIT_SIGPENDING, p->sigpending);
	limit_at_most(RLIMIT_MSGQUEUE, p->msgqueue);
	if (*profile[0])
		confine(profile[0]);
	if (p->flags & SHIM_JOIN)
		join(p);
	if (p->flags & SHIM_NEW_CGROUPS && unshare(CLONE_NEWCGROUP) < 0)
		fail(SHIM_CGROUPS, errno);
	attach_trees(p, targets);
	reset_signals();
	umask(022);
	close_on_exec_from(3 + p->nfds);
	if (p->flags & SHIM_OWN_STDIO)
		own_stdio(p->uid);
	drop_bounding(p->bounding);
	if (p->flags & SHIM_LANDLOCK)
		restrict_self(p);
	/* As root first, then as the user: a directory can be inaccessible to either. */
	there = change_directory(dir[0], p->bounding) == 0;
	become_user(p, groups);
	if (!there && chdir(dir[0]) < 0)
		fail(SHIM_CHDIR, errno);
	check_directory();
	if (p->flags & SHIM_NO_NEW_PRIVS && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		fail(SHIM_NNP, errno);
	program = find_program(candidates);
	load_filter(filter, p->nfilter);
	execve(program, args, env);
	fail(SHIM_EXEC, errno);
}

static void __attribute__((constructor)) shim(void)
{
	const char *first = getenv(SHIM_ENV);
	const struct shim_plan *plan;
	struct cursor rest;
	char *end;
	long n;

	if (first == NULL)
		return;
	n = strtol(first, &end, 10);
	if (end == first || *end || n < 3 || n > INT_MAX / 2)
		_exit(126); /* without a descriptor to report to */
	first_fd = (int)n;
	/* The app's other processes must not read the shim while it has more privileges than they. */
	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	plan = map_plan(first_fd + SHIM_PLAN, sizeof(*plan), &rest);
	if (plan->magic != SHIM_MAGIC || plan->size != (uint64_t)(rest.end - (const char *)plan))
		bad_plan(EINVAL);
	become_app(plan, &rest);
}
