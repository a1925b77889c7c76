/*
 * The stager's first process, the one that the daemon knows: it waits.
 *
 *	daemon
 *	 └─ waiter             this file; passes SIGTERM, SIGINT and SIGQUIT on, and
 *	     │                 ends as the supervisor ends
 *	     └─ supervisor     supervise.go, boot.go, PID 1 of the pod
 *
 * It stays for the life of the pod, so no Go runtime starts in it: half a
 * megabyte instead of five, and nothing that could fail. The supervisor dies with
 * it: the waiter holds the other end of its lifeline, and is the parent that
 * PR_SET_PDEATHSIG is about.
 *
 * The supervisor is started in the namespaces that a pod has by default, before
 * anybody has read the manifest. Where the manifest wants others it says so on the
 * report pipe and ends, and is started again in those.
 *
 * The waiter has the ready pipe open, too, until the supervisor says that the pod
 * is up: of a start that fails, the daemon must not see that pipe's end before
 * it can see the stager's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the program is called as a stager, the last element of the image's exec. */
#define STAGER "stager"

/* "LIFELINE,REPORT,NAMESPACES" in decimal, for supervise() in supervise.go. */
#define SUPERVISOR_ENV "_STAGER_SUPERVISOR"

/* A pod's own by default; the network's is the daemon's to make. */
#define DEFAULT_NAMESPACES (CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS)

/* Descriptors of ours are from here on: 3 and 4 may be the daemon's. */
#define FIRST_DESCRIPTOR 10

/* What the waiter keeps, beside stdio, while it waits. */
#define KEPT_LIFELINE 3
#define KEPT_REPORT 4
#define KEPT_READY 5

#define CGROUPS "/sys/fs/cgroup"

/* What the supervisor writes to the report pipe when it has read the manifest, see
 * settle() in supervise.go. Where there is a ready pipe, one byte follows
 * when the pod is up. */
struct settlement {
	int32_t namespaces; /* that it wants, as in clone(2) */
	int32_t ready;      /* the ready pipe's descriptor, or -1 */
};

static void __attribute__((noreturn)) give_up(const char *what)
{
	fprintf(stderr, "stager: %s: %s\n", what, strerror(errno));
	_exit(1);
}

/* Only a stager waits: no call-in, no "stager COMMAND", none of the processes
 * that are this program again. */
static int is_stager(int argc, char **argv)
{
	static const char *const marks[] = { SUPERVISOR_ENV, "_STAGER_SHIM", "_LIBCONTAINER_INITPIPE" };
	const char *base;
	size_t i;

	if (argc != 1)
		return 0;
	base = strrchr(argv[0], '/');
	base = base ? base + 1 : argv[0];
	if (strcmp(base, STAGER) != 0)
		return 0;
	for (i = 0; i < sizeof(marks) / sizeof(*marks); i++)
		if (getenv(marks[i]))
			return 0;
	return 1;
}

/* A pipe whose ends are out of the daemon's way. */
static void make_pipe(int ends[2])
{
	int made[2], i;

	if (pipe2(made, O_CLOEXEC) < 0)
		give_up("make pipe");
	for (i = 0; i < 2; i++) {
		ends[i] = fcntl(made[i], F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR);
		if (ends[i] < 0)
			give_up("make pipe");
		close(made[i]);
	}
}

/*
 * Enters a leaf cgroup where only cgroup v2 is mounted: a cgroup with processes
 * of its own cannot hand controllers to its children (cgroups(7), "no internal
 * processes"), and the apps' will be beside the leaf.
 */
static void enter_leaf(void)
{
	struct statfs fs;
	int fd;

	if (statfs(CGROUPS, &fs) < 0 || fs.f_type != CGROUP2_SUPER_MAGIC)
		return;
	if (mkdir(CGROUPS "/stager", 0755) < 0 && errno != EEXIST)
		give_up("make cgroup " CGROUPS "/stager");
	fd = open(CGROUPS "/stager/cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, "0", 1) != 1)
		give_up("enter cgroup " CGROUPS "/stager");
	close(fd);
}

/*
 * Makes a mount namespace whose root is the stager's root. The daemon has put
 * the stager into a chroot, and a chroot is not enough for what the supervisor
 * starts: the namespace's own root would still be the host's, setns(2) would
 * lead there, and so would an app's CAP_SYS_CHROOT. What the daemon mounts later
 * still comes in; nothing goes out.
 */
static void enter_mount_namespace(void)
{
	char path[PATH_MAX];
	int root, own;

	if (unshare(CLONE_NEWNS) < 0)
		give_up("make mount namespace");
	/* Not before: an open directory stays in the namespace it was opened in. */
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	/* Joining a mount namespace leads to its root, one's own included (setns(2)). */
	if (root < 0 || own < 0 || setns(own, CLONE_NEWNS) < 0)
		give_up("leave chroot");
	if (mount("", "/", "", MS_SLAVE | MS_REC, NULL) < 0)
		give_up("make mounts slaves of the stager's");
	if (fchdir(root) < 0 || getcwd(path, sizeof(path)) == NULL)
		give_up("find root");
	close(root);
	close(own);
	if (strcmp(path, "/") == 0)
		return; /* the daemon has done it already */
	if (mount(path, path, "", MS_BIND | MS_REC, NULL) < 0 || chdir(path) < 0)
		give_up("make root a mount point");
	if (syscall(SYS_pivot_root, ".", ".") == 0) {
		/* The old root lies on top of the new one now (pivot_root(2), NOTES). */
		if (umount2(".", MNT_DETACH) < 0)
			give_up("detach host's root");
	} else if (errno == EINVAL) {
		/* The host runs from its initial RAM disk, which cannot be moved
		 * away; to be mounted over hides it as well. */
		if (mount(path, "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0)
			give_up("move root");
	} else {
		give_up("pivot root");
	}
	if (chdir("/") < 0)
		give_up("change to root");
}

/* Becomes the supervisor: this program again, at its path in the new root. */
static void __attribute__((noreturn)) become_supervisor(int namespaces, int lifeline, int report, const sigset_t *signals)
{
	char self[PATH_MAX], mark[64];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *args[] = { self, NULL };

	if (n < 0)
		give_up("find own program");
	self[n] = 0;
	if (namespaces & CLONE_NEWPID && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
		give_up("set parent-death signal");
	if (unshare(namespaces & ~CLONE_NEWPID) < 0)
		give_up("make namespaces");
	enter_mount_namespace();
	fcntl(lifeline, F_SETFD, 0);
	fcntl(report, F_SETFD, 0);
	snprintf(mark, sizeof(mark), "%d,%d,%d", lifeline, report, namespaces);
	setenv(SUPERVISOR_ENV, mark, 1);
	sigprocmask(SIG_SETMASK, signals, NULL);
	execv(self, args);
	give_up("execute supervisor");
}

/* Makes the next child PID 1 of a new PID namespace, or one of our own. */
static void choose_pid_namespace(int namespaces)
{
	/* A namespace that was made for an earlier child is in the way of both
	 * (unshare(2), EINVAL). */
	int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);

	if (own < 0 || setns(own, CLONE_NEWPID) < 0)
		give_up("stay in PID namespace");
	close(own);
	if (namespaces & CLONE_NEWPID) {
		if (unshare(CLONE_NEWPID) < 0)
			give_up("make PID namespace");
		return;
	}
	/* What the supervisor leaves behind comes to us, see end_as. */
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		give_up("become child subreaper");
}

/* Starts a supervisor and reads what it settles; 0 when it has ended instead.
 * *report is the read end of its report pipe. */
static int start_supervisor(int namespaces, const int lifeline[2], const sigset_t *signals,
			    pid_t *supervisor, int *report, struct settlement *settled)
{
	int ends[2];
	ssize_t n;

	choose_pid_namespace(namespaces);
	make_pipe(ends);
	*supervisor = fork();
	if (*supervisor < 0)
		give_up("fork");
	if (*supervisor == 0)
		become_supervisor(namespaces, lifeline[0], ends[1], signals);
	close(ends[1]);
	*report = ends[0];
	do
		n = read(ends[0], settled, sizeof(*settled));
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(*settled);
}

/* Lets go of everything but stdio, the lifeline and, where there is a ready
 * pipe, that and the report pipe. */
static void keep_only(int lifeline, int report, int ready)
{
	int fd, first = KEPT_LIFELINE + 1, max = (int)sysconf(_SC_OPEN_MAX);

	if (ready >= 0) {
		ready = fcntl(ready, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR);
		if (ready < 0 || dup2(report, KEPT_REPORT) < 0 || dup2(ready, KEPT_READY) < 0)
			give_up("keep ready pipe");
		/* SIGIO when something comes. */
		if (fcntl(KEPT_REPORT, F_SETOWN, getpid()) < 0 || fcntl(KEPT_REPORT, F_SETFL, O_ASYNC | O_NONBLOCK) < 0)
			give_up("watch report pipe");
		first = KEPT_READY + 1;
	}
	if (dup2(lifeline, KEPT_LIFELINE) < 0)
		give_up("keep lifeline");
	if (close_range((unsigned)first, ~0U, 0) == 0)
		return;
	for (fd = first; fd < max; fd++)
		close(fd);
}

/* Lets go of the ready pipe once the supervisor has said that the pod is up.
 * Afterwards, and without a ready pipe, there is nothing to read from. */
static void pass_ready_on(void)
{
	char up;

	if (read(KEPT_REPORT, &up, 1) != 1)
		return;
	close(KEPT_READY);
	close(KEPT_REPORT);
}

/* Kills what a supervisor in the host's PID namespace has left: its orphans
 * are our children, and theirs will be when they are dead. */
static void kill_children(void)
{
	char path[64];
	int child;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
	do {
		f = fopen(path, "re");
		if (f == NULL)
			return;
		while (fscanf(f, "%d", &child) == 1)
			kill(child, SIGKILL);
		fclose(f);
	} while (waitpid(-1, NULL, 0) > 0);
}

/* Ends as the supervisor did. */
static void __attribute__((noreturn)) end_as(int status)
{
	kill_children();
	if (WIFEXITED(status))
		_exit(WEXITSTATUS(status));
	fprintf(stderr, "stager: supervisor was ended by signal %d\n", WTERMSIG(status));
	_exit(1);
}

/* Gives back the pages of the program that only the start needed; the few that
 * are used again come back from the page cache. Advice: nothing depends on it. */
static void release_start_memory(void)
{
	extern char __executable_start[], etext[];
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)__executable_start & ~(page - 1);

	madvise((void *)start, ((uintptr_t)etext - start) & ~(page - 1), MADV_DONTNEED);
}

static void __attribute__((noreturn)) wait_for(pid_t supervisor, const sigset_t *signals)
{
	for (;;) {
		int signal, status;
		pid_t pid;

		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
			if (pid == supervisor)
				end_as(status);
		pass_ready_on();
		signal = sigwaitinfo(signals, NULL);
		if (signal > 0 && signal != SIGCHLD && signal != SIGIO)
			kill(supervisor, signal);
	}
}

/*
 * Blocks the signals that the waiter waits for until somebody is there to get
 * them: none is lost. One that is ignored would be, blocked or not, and of a child
 * there would be no status (signal(7), wait(2)): a daemon's ignoring ends here.
 */
static void take_signals(sigset_t *signals, sigset_t *before)
{
	static const int awaited[] = { SIGTERM, SIGINT, SIGQUIT, SIGCHLD, SIGIO };
	size_t i;

	sigemptyset(signals);
	for (i = 0; i < sizeof(awaited) / sizeof(*awaited); i++)
		sigaddset(signals, awaited[i]);
	sigprocmask(SIG_BLOCK, signals, before);
	for (i = 0; i < sizeof(awaited) / sizeof(*awaited); i++)
		signal(awaited[i], SIG_DFL);
}

static void __attribute__((constructor)) waiter(int argc, char **argv)
{
	int lifeline[2], report, namespaces = DEFAULT_NAMESPACES;
	struct settlement settled;
	sigset_t signals, before;
	pid_t supervisor;

	if (!is_stager(argc, argv))
		return;
	umask(022); /* whatever the daemon's, for what is made in the stager's root */
	take_signals(&signals, &before);
	enter_leaf();
	make_pipe(lifeline);
	while (start_supervisor(namespaces, lifeline, &before, &supervisor, &report, &settled)) {
		if (settled.namespaces == namespaces) {
			keep_only(lifeline[1], report, settled.ready);
			break;
		}
		close(report);
		waitpid(supervisor, NULL, 0);
		namespaces = settled.namespaces;
	}
	release_start_memory();
	wait_for(supervisor, &signals);
}
