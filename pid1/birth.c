/* How init comes to be what init.c needs: its descriptors, its root and its signals. */
#define _GNU_SOURCE
#include "calls.h"
#include "child.h"
#include "first.h"
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* init's own descriptors begin here, above those of a start, which has some ten for each mount. */
static int init_first;

int init_file(enum init_files file) { return init_first + (int)file; }

/* Moves the descriptors up, and closes all others. */
static void keep_files(const int files[], int signals)
{
	struct rlimit limit;
	int i;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		give_up("get limit of open files");
	child_open_files = limit;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	init_first = 4096;
	if (limit.rlim_cur < (rlim_t)init_file(INIT_NFILES))
		init_first = (int)limit.rlim_cur - INIT_NFILES;
	for (i = 0; i < INIT_PASSED; i++)
		if (files[i] >= 0 && dup3(files[i], init_file((enum init_files)i), O_CLOEXEC) < 0)
			give_up("keep descriptor");
	if (dup3(signals, init_file(INIT_SIGNALS), O_CLOEXEC) < 0)
		give_up("keep descriptor");
}

/* On a host that runs from its initial RAM disk, pivot_root(2) fails; to be mounted over hides the old root as well. */
static int move_root(void)
{
	return errno != EINVAL || mount(".", "/", NULL, MS_MOVE, NULL) < 0 ? -1 : chroot(".");
}

/*
 * Has a root with /proc alone: a child begins with a copy of init's mounts. The supervisor's has a root for each app,
 * which each start would copy, walk and unmount.
 */
static void leave_mounts(void)
{
	if (mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) < 0 || mount("init", "/proc", "tmpfs", 0, "mode=555") < 0 ||
	    chdir("/proc") < 0 || mkdir("proc", 0555) < 0 ||
	    mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		give_up("make init's root");
	if (syscall(SYS_pivot_root, ".", ".") == 0 ? umount2(".", MNT_DETACH) < 0 || chdir("/") < 0 : move_root() < 0)
		give_up("make init's root");
}

/* Ignores all signals but SIGCHLD, which a signalfd takes. */
static int ignore_signals(void)
{
	/* The kernel's structure (rt_sigaction(2)): signal(3) refuses the signals that the C library uses itself. The daemon
	 * may ignore SIGCHLD, which would lose the children's statuses (wait(2)). */
	static const unsigned long ignored[5] = { 1 }, usual[5];
	sigset_t awaited;
	int s;

	for (s = 1; s < 65; s++)
		syscall(SYS_rt_sigaction, s, s == SIGCHLD ? usual : ignored, NULL, 8);
	sigemptyset(&awaited);
	sigaddset(&awaited, SIGCHLD);
	sigprocmask(SIG_SETMASK, &awaited, NULL);
	s = signalfd(-1, &awaited, SFD_NONBLOCK | SFD_CLOEXEC);
	if (s < 0)
		give_up("make signal descriptor");
	return s;
}

/* Releases the pages of the program that only the start needed; the kernel reloads the few that are used again from the
 * page cache. Nothing depends on this advice. */
static void release_start_memory(void)
{
	extern char __executable_start[], etext[];
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = (uintptr_t)__executable_start & ~(page - 1);

	madvise((void *)start, ((uintptr_t)etext - start) & ~(page - 1), MADV_DONTNEED);
}

/* A group that nobody has. */
#define UNUSED_GROUP 65534

void init_live(uint32_t namespaces, const int files[])
{
	struct init_message begun = { .kind = INIT_BEGUN };
	int pids;

	/* prlimit(2) asks for the same user and group IDs, the saved ones too: no app has this group. */
	if (syscall(SYS_setresgid, -1, -1, UNUSED_GROUP) < 0)
		give_up("keep other processes from init's limits");
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		give_up("keep other processes from reading init");
	if (!(namespaces & CLONE_NEWPID) && prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		give_up("become child subreaper");
	keep_files(files, ignore_signals());
	leave_mounts();
	pids = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
	if (dup3(pids, init_file(INIT_PIDS), O_CLOEXEC) < 0)
		give_up("open PID namespace");
	close_between(init_file(INIT_NFILES), INT_MAX);
	close_between(0, init_first - 1);
	release_start_memory();
	init_send(init_file(INIT_CHANNEL), init_file(INIT_LIFELINE), &begun);
	init_serve(namespaces, files[INIT_READY] >= 0);
}
