/*
 * A child of init: a fork that makes an app's root, and becomes the app as the shim does.
 *
 *	supervisor (Go)                                   init, then its child (C)
 *	makes all mounts, detached, and /dev's nodes
 *	INIT_START ─────────────────────────────────────► clone3(2): into its cgroup and mount namespace
 *	                                                  keeps its descriptors only
 *	                                                  new session, terminal, keyring, label, cgroups of version 1
 *	                                                  new root, mounts to their targets, /proc, masks
 *	              ◄───── a report without a step ───── waits
 *	looks the user up in the root, writes the
 *	shim's plan, then a byte ───────────────────────► shim_become(): what the shim does
 *	              ◄───── end of the report ────────── execve(2)
 *
 * It is no child of vfork(2) (CLONE_VM and CLONE_VFORK): an app that stops or freezes a child with init's memory would
 * stop init.
 *
 * What a process can do meanwhile that is in the pod's PID namespace or writes to the app's root:
 *   - change the root's files while a target is looked up: openat2(2) resolves it in the root, without the links of
 *     /proc, and gives a descriptor, on which the mount is put. Links to the system's own folders are not followed;
 *   - remount or unmount: the mounts are in the child's own namespace, the root was made a slave before anything is
 *     attached, and nothing is resolved outside of the new root;
 *   - stop the child: init continues it until it is its program; kill it: the start fails while the root is made, later
 *     the app has ended by the signal;
 *   - freeze it, or take its memory, its processor or its PIDs: a call fails, or the start's limit in time ends it. It
 *     has no descriptor for whose end another start waits;
 *   - trace or read it: it is outside of all Landlock domains, and not dumpable, as init is.
 */
#define _GNU_SOURCE
#include "child.h"
#include "calls.h"
#include "first.h"
#include "privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* From linux/mount.h, linux/openat2.h and linux/sched.h, which Debian 12's and musl's headers do not have or cannot
 * include beside sys/mount.h and sched.h. */
#define TO_DESCRIPTOR 0x40
#define INTO_CGROUP 0x200000000ULL
#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x1000
#endif
#define NO_MAGIC_LINKS 0x02
#define NO_LINKS 0x04
#define IN_ROOT 0x10

struct clone_arguments { /* clone_args, of Linux 5.7 */
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup;
};
struct how { uint64_t flags, mode, resolve; };
struct attributes { uint64_t set, clear, propagation, userns; };

static void __attribute__((noreturn)) fail(uint32_t step) { shim_fail(step, errno); }

/* Keeps the files of the plan, which are 0, 1, 2 and so on: those before the shim's also across execve(2). */
static void keep_files(int n, int shim)
{
	int i;

	for (i = 0; i < shim; i++)
		if (fcntl(i, F_SETFD, 0) < 0)
			fail(CHILD_FILES);
	close_between(n, INT_MAX); /* init's */
}

/* Makes or joins the container's session keyring. A kernel can lack keyrings. */
static void join_keyring(const char *name, int made)
{
	/* The kernel's default, plus search for processes of the same user, which join the keyring. */
	const unsigned int permissions = 0x3f1b0000;
	long ring = syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, name);

	if (ring < 0 && errno == ENOSYS)
		return;
	if (ring < 0 || (made && syscall(SYS_keyctl, KEYCTL_SETPERM, ring, permissions) < 0))
		fail(CHILD_KEYRING);
}

/* Sets an SELinux label until the next exec, or for it. */
static void set_label(const char *file, const char *label)
{
	int fd = open(file, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, label, strlen(label)) < 0)
		fail(CHILD_LABEL);
	close(fd);
}

/* Makes the mount the root, and leaves init's mounts. The working directory is the root then. */
static void enter_root(int root)
{
	if (mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) < 0)
		fail(CHILD_ROOT);
	if (syscall(SYS_move_mount, root, "", AT_FDCWD, "/", FROM_DESCRIPTOR) < 0 || fchdir(root) < 0)
		fail(CHILD_ROOT);
	/* The old root lies on top of the new one then (pivot_root(2), NOTES). */
	if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		fail(CHILD_ROOT);
}

/* Opens what is at a path in the root, the working directory, to mount on it. Returns -1 for nothing. */
static int find(const char *path, uint32_t flags)
{
	struct how how = { O_PATH | O_CLOEXEC, 0, IN_ROOT | NO_MAGIC_LINKS };
	int fd, tries = 0;

	if (flags & CHILD_NO_LINKS)
		how.resolve |= NO_LINKS;
	do { /* a rename meanwhile (openat2(2), EAGAIN) */
		fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
	} while (fd < 0 && (errno == EAGAIN || errno == EINTR) && tries++ < 1000);
	return fd;
}

/* Makes a file or folder, which somebody else may have made meanwhile. */
static int make_one(int parent, const char *name, int file)
{
	int result = file ? mknodat(parent, name, S_IFREG | 0644, 0) : mkdirat(parent, name, 0755);

	return errno == EEXIST ? 0 : result;
}

/* Makes what is missing of a path, folder by folder; each is opened in the root before the next is made in it. */
static int make(char *path, uint32_t flags)
{
	int folder = find("/", 0), last = 0;
	char *name = path;

	while (folder >= 0 && !last) {
		int parent = folder;
		char *end;

		name += strspn(name, "/");
		end = name + strcspn(name, "/");
		last = *end == 0;
		*end = 0;
		folder = find(path, flags);
		if (folder < 0 && errno == ENOENT && make_one(parent, name, last && flags & CHILD_FILE) == 0)
			folder = find(path, flags);
		close(parent);
		if (!last)
			*end = '/';
		name = end;
	}
	return folder;
}

static int target_of(const struct child_op *op, char *path)
{
	int fd = find(path, op->flags);

	if (fd < 0 && errno == ENOENT && op->flags & (CHILD_FOLDER | CHILD_FILE))
		fd = make(path, op->flags);
	return fd;
}

static int attach(int mount, int target)
{
	return (int)syscall(SYS_move_mount, mount, "", target, "", FROM_DESCRIPTOR | TO_DESCRIPTOR);
}

static int restrict_mount(int mount, uint64_t set)
{
	struct attributes a = { set, 0, 0, 0 };

	return set ? (int)syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &a, sizeof(a)) : 0;
}

/* Attaches a copy of what is mounted at source, or at target itself where there is no source. */
static int copy(const char *source, int target, uint64_t set)
{
	int from = *source ? find(source, 0) : target, tree, result;

	if (from < 0)
		return -1;
	tree = (int)syscall(SYS_open_tree, from, "", TREE_CLONE | O_CLOEXEC | AT_EMPTY_PATH | (*source ? 0 : TREE_RECURSIVE));
	result = tree < 0 || restrict_mount(tree, set) < 0 || attach(tree, target) < 0 ? -1 : 0;
	if (tree >= 0) /* errno stays */
		close(tree);
	if (from != target)
		close(from);
	return result;
}

/* Hides what is at target. A detached mount cannot be copied before Linux 6.15, so the first target of a kind gets the
 * mount itself. */
static int mask(const struct child_op *op, int target)
{
	static int used[2];
	struct stat st;
	int folder, mount, tree, result;

	if (fstat(target, &st) < 0)
		return -1;
	folder = S_ISDIR(st.st_mode);
	mount = (int)(folder ? op->other : op->file);
	if (!used[folder]) {
		used[folder] = 1;
		return attach(mount, target);
	}
	tree = (int)syscall(SYS_open_tree, mount, "", TREE_CLONE | O_CLOEXEC | AT_EMPTY_PATH);
	result = tree < 0 ? -1 : attach(tree, target);
	if (tree >= 0) /* errno stays */
		close(tree);
	return result;
}

/* Attaches a new /proc, which shows the PID namespace of its maker. */
static int mount_proc(const char *hidepid, int target, unsigned int set)
{
	enum { CLOEXEC = 1, STRING = 1, CREATE = 6 }; /* fsopen(2), fsconfig(2), fsmount(2) */
	int fs = (int)syscall(SYS_fsopen, "proc", CLOEXEC), tree, result;

	if (fs < 0 || (*hidepid && syscall(SYS_fsconfig, fs, STRING, "hidepid", hidepid, 0) < 0) ||
	    syscall(SYS_fsconfig, fs, CREATE, NULL, NULL, 0) < 0)
		return -1;
	tree = (int)syscall(SYS_fsmount, fs, CLOEXEC, set);
	result = tree < 0 ? -1 : attach(tree, target);
	if (tree >= 0) /* errno stays; the child's other files are closed later */
		close(tree);
	return result;
}

static int execute(const struct child_op *op, const char *source, char *path)
{
	int target, result = op->kind == CHILD_MAKE ? 0 : -1;

	if (op->kind == CHILD_RESTRICT)
		return restrict_mount((int)op->file, op->set);
	target = target_of(op, path);
	if (target < 0)
		return op->flags & CHILD_IF_THERE && (errno == ENOENT || errno == ENOTDIR) ? 0 : -1;
	if (op->kind == CHILD_ATTACH)
		result = attach((int)op->file, target);
	else if (op->kind == CHILD_COPY)
		result = copy(source, target, op->set);
	else if (op->kind == CHILD_PROC)
		result = mount_proc(source, target, (unsigned int)op->set);
	else if (op->kind == CHILD_MASK)
		result = mask(op, target);
	close(target);
	return result;
}

/* Makes the root as the plan says, and waits until the supervisor has looked at it. */
static void make_root(const struct child_plan *p, const struct child_op *ops, char *strings)
{
	static const uint32_t made[2];
	char *source, *target, go;
	ssize_t n;
	uint32_t i;

	enter_root((int)p->root);
	make_files_as(p->owner);
	for (i = 0; i < p->nops; i++) {
		source = strings;
		target = source + strlen(source) + 1;
		strings = target + strlen(target) + 1;
		if (execute(&ops[i], source, target) < 0)
			fail(CHILD_OPERATION | i << CHILD_SHIFT);
	}
	while (write((int)p->shim + SHIM_REPORT, made, sizeof(made)) < 0 && errno == EINTR)
		;
	do {
		n = read((int)p->ready, &go, 1);
	} while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(126); /* the supervisor has given up */
	/* The shim opens files, and there may be more mounts than the limit of open files. */
	syscall(SYS_close_range, (int)p->ready, ~0U, 0);
}

struct rlimit child_open_files;

static void __attribute__((noreturn)) child(struct child_plan *p)
{
	struct child_op *ops = (struct child_op *)(void *)(p + 1);
	char *keyring = (char *)(ops + p->nops), *label = keyring + strlen(keyring) + 1;
	uint32_t i;

	shim_files((int)p->shim);
	keep_files((int)p->nfiles, (int)p->shim);
	if (setsid() < 0 || (p->flags & CHILD_TERMINAL && ioctl(0, TIOCSCTTY, 0) < 0))
		fail(CHILD_SESSION);
	if (*label && p->root)
		set_label("/proc/self/attr/keycreate", label);
	join_keyring(keyring, p->root != 0);
	if (*label)
		set_label("/proc/self/attr/exec", label);
	for (i = 0; i < p->ncgroups; i++)
		if (write((int)(p->cgroups + i), "0", 1) != 1)
			fail(SHIM_CGROUP);
	if (p->root)
		make_root(p, ops, label + strlen(label) + 1);
	if (setrlimit(RLIMIT_NOFILE, &child_open_files) < 0)
		fail(SHIM_LIMIT);
	shim_become();
}

int child_fork(struct child_plan *p, int cgroup, int *pidfd)
{
	struct clone_arguments arguments = { .flags = CLONE_PIDFD, .pidfd = (uintptr_t)pidfd, .exit_signal = SIGCHLD };
	long pid;

	if (p->root)
		arguments.flags |= CLONE_NEWNS;
	if (p->flags & CHILD_OWN_PIDS)
		arguments.flags |= CLONE_NEWPID;
	if (cgroup >= 0) {
		arguments.flags |= INTO_CGROUP;
		arguments.cgroup = (uint64_t)cgroup;
	}
	pid = syscall(SYS_clone3, &arguments, sizeof(arguments));
	if (pid == 0)
		child(p);
	return pid < 0 ? -errno : (int)pid;
}
