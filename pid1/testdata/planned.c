/*
 * Forks a child by plans from standard input, as init does, in a mount namespace of its own; FuzzPlan of package
 * container compiles it with sanitizers. Exits with 0 if the child has ended in any way but by a sanitizer, and the
 * mounts outside of the child's namespace stay as they were. The argument is a static program for the root.
 *
 * The input is the lengths of both plans, as two uint32_t, then the plans of child.h and shim.h. The child's files are
 *
 *	0 to 2   /dev/null, /dev/null, standard error
 *	3        the root: a file system in memory with the program /bin/true
 *	4        a pipe: when a byte comes, the shim's plan can be read
 *	5, 6     a folder and a file, detached
 *	7 to 9   the shim's program, plan and report
 */
#define _GNU_SOURCE
#include "child.h"
#include "shim.h"

#include <err.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FILES = 10, BY_SANITIZER = 99, OUTSIDE = 98, CREATE = 6, TREE_CLONE = 1, EMPTY_PATH = 4 };

static int must(int result, const char *what)
{
	if (result < 0)
		err(1, "%s", what);
	return result;
}

static void take(void *to, size_t n)
{
	if (fread(to, 1, n, stdin) != n)
		errx(1, "short input");
}

/* Returns a detached file system in memory. */
static int memory(void)
{
	int fs = must((int)syscall(SYS_fsopen, "tmpfs", 0), "fsopen"), tree;

	must((int)syscall(SYS_fsconfig, fs, CREATE, NULL, NULL, 0), "fsconfig");
	tree = must((int)syscall(SYS_fsmount, fs, 0, 0), "fsmount");
	close(fs);
	return tree;
}

static void add_program(int root, const char *program)
{
	static char text[4 << 20];
	int from = must(open(program, O_RDONLY), program), to;
	ssize_t n = must((int)read(from, text, sizeof(text)), program);

	must(mkdirat(root, "bin", 0755), "mkdir");
	to = must(openat(root, "bin/true", O_WRONLY | O_CREAT, 0755), "create");
	must((int)write(to, text, (size_t)n), "write");
	close(from);
	close(to);
}

static long mounts(void)
{
	static char text[1 << 20];
	int fd = must(open("/proc/self/mountinfo", O_RDONLY), "open mountinfo");
	long sum = 0;
	ssize_t n, i;

	while ((n = must((int)read(fd, text, sizeof(text)), "read mountinfo")) > 0)
		for (i = 0; i < n; i++)
			sum = (sum * 31 + text[i]) & 0xffffffff;
	close(fd);
	return sum;
}

static char *read_plan(uint32_t size)
{
	char *plan = mmap(NULL, size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (plan == MAP_FAILED)
		err(1, "mmap");
	take(plan, size);
	return plan;
}

/* Gives the descriptors the numbers 0, 1, 2 and so on. */
static void number(const int files[])
{
	int high[FILES], i;

	for (i = 0; i < FILES; i++)
		high[i] = must(fcntl(files[i], F_DUPFD_CLOEXEC, 100), "dup");
	for (i = 0; i < FILES; i++)
		must(dup3(high[i], i, O_CLOEXEC), "dup3");
}

int main(int argc, char **argv)
{
	uint32_t size[2];
	struct shim_report report = { 0, 0 };
	char *plan, *shim;
	int files[FILES], ready[2], told[2], null, pid, pidfd, status;
	long before;

	if (argc != 2)
		errx(1, "usage: planned PROGRAM");
	must(unshare(CLONE_NEWNS), "unshare");
	must(mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL), "make / a slave");
	must(getrlimit(RLIMIT_NOFILE, &child_open_files), "getrlimit");
	take(size, sizeof(size));
	plan = read_plan(size[0]);
	shim = read_plan(size[1]);
	must(pipe2(ready, O_CLOEXEC), "pipe");
	must(pipe2(told, O_CLOEXEC), "pipe");
	must(ready[1] = fcntl(ready[1], F_DUPFD_CLOEXEC, 200), "dup");
	must(told[0] = fcntl(told[0], F_DUPFD_CLOEXEC, 200), "dup");
	null = must(open("/dev/null", O_RDWR), "open /dev/null");
	files[0] = files[1] = null;
	files[2] = 2;
	files[3] = memory();
	add_program(files[3], argv[1]);
	files[4] = ready[0];
	files[5] = memory();
	files[6] = must((int)syscall(SYS_open_tree, null, "", TREE_CLONE | AT_EMPTY_PATH), "open_tree");
	files[7] = must(open("/proc/self/exe", O_RDONLY), "open the program");
	files[8] = must(memfd_create("plan", 0), "memfd_create");
	must((int)write(files[8], shim, size[1]), "write the shim's plan");
	files[9] = told[1];
	number(files);
	must(close_range(FILES, 199, 0), "close_range");
	before = mounts();

	pid = child_fork((struct child_plan *)(void *)plan, -1, &pidfd);
	if (pid < 0)
		errx(1, "clone3: %s", strerror(-pid));
	must(close(FILES - 1), "close");
	if (read(told[0], &report, sizeof(report)) == sizeof(report) && report.step == 0)
		must((int)write(ready[1], "", 1), "write to the child");
	must(waitpid(pid, &status, 0), "wait");
	if (mounts() != before)
		return OUTSIDE;
	if (WIFEXITED(status) && WEXITSTATUS(status) == BY_SANITIZER)
		return BY_SANITIZER;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : 0;
}
