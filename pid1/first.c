/*
 * The beginning of a stager, before its Go runtime starts.
 *
 *	daemon
 *	 └─ stager               this process: the constructor below, then the Go runtime in the same process, which is the
 *	     │                   supervisor
 *	     └─ lifeline         a thread with no descriptors but its own; parent of
 *	         ├─ seed         a fork of the small program: waits for INIT_BEGIN, clones init and ends
 *	         └─ init         init.c: PID 1 of the pod, in a copy of the seed's memory, not of the Go runtime's
 *
 * The seed makes init with CLONE_PARENT, so that init's parent is the lifeline's thread. By then the supervisor has
 * read the manifest and knows the pod's namespaces.
 *
 * The lifeline is how the pod ends with the supervisor although the supervisor cannot end. The kernel closes the
 * descriptors of a process that is killed one after the other, and an app can hold that up: sendfile(2) and splice(2)
 * lock the pipe into which they copy while the source, such as an idle terminal, has nothing, and to close the
 * supervisor's end of that pipe takes the same lock. The thread's own table has one socket, whose other end is init's.
 * Nothing delays its close, and when the thread is gone, the kernel kills an init that is stopped (PR_SET_PDEATHSIG).
 */
#define _GNU_SOURCE
#include "first.h"

#include "calls.h"
#include "init.h"
#include "part.h"
#include "thread.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void give_up(const char *what)
{
	fprintf(stderr, STAGER_PROGRAM ": %s: %s\n", what, strerror(errno));
	_exit(1);
}

/* Returns 1 in a stager: not in a call-in, not in "stager COMMAND", and in none of the processes that are this program
 * again. */
static int is_stager(void)
{
	char line[PATH_MAX];
	size_t n = read_arguments(line, sizeof(line));

	return n > 0 && strlen(line) + 1 == n && strcmp(base_name(line), STAGER_PROGRAM) == 0;
}

/* The supervisor's end of the channel; -1 in other parts of the program. */
static int channel = -1;
static pid_t channels_seed;

int first_channel(pid_t *seed)
{
	*seed = channels_seed;
	return channel;
}

/* Moves a descriptor to FIRST_DESCRIPTOR or above. */
static int move_up(int fd)
{
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR);

	close(fd);
	return moved;
}

static int make_pair(int kind, int ends[2])
{
	if (socketpair(AF_UNIX, kind | SOCK_CLOEXEC, 0, ends) < 0)
		return -1;
	ends[0] = move_up(ends[0]);
	ends[1] = move_up(ends[1]);
	return ends[0] < 0 || ends[1] < 0 ? -1 : 0;
}

/* The seed: makes init when the supervisor asks. */
static void __attribute__((noreturn)) wait_for_begin(int fd, int lifeline)
{
	struct init_message m = { 0 }, born = { .kind = INIT_BORN };
	int files[INIT_PASSED] = { fd, lifeline, -1, -1 };
	long pid;

	prctl(PR_SET_PDEATHSIG, SIGKILL); /* fails for a wrong signal number alone (PR_SET_PDEATHSIG(2const)) */
	if (init_receive(fd, &m, &files[INIT_SUPERVISOR], 2) < 1 || m.kind != INIT_BEGIN)
		_exit(0); /* the supervisor has ended */
	pid = syscall(SYS_clone, (unsigned long)m.namespaces | CLONE_PARENT | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0);
	if (pid == 0)
		init_live(m.namespaces, files);
	born.number = (int32_t)pid;
	born.error = pid < 0 ? errno : 0;
	_exit(init_send(fd, lifeline, &born) < 0);
}

/* What the lifeline's thread gets. */
struct lifeline {
	int supervisors, channel, own, inits; /* ends of sockets */
	pid_t seed;
	int error;
	sem_t begun;
};

/* The thread. It blocks all signals, and has no descriptor but its own end. */
static void *hold(void *argument)
{
	struct lifeline *l = argument;
	int own = l->own;

	l->seed = fork();
	if (l->seed == 0) {
		close(l->supervisors); /* the seed would hold the other ends of its own sockets */
		close(own);
		wait_for_begin(l->channel, l->inits);
	}
	if (l->seed < 0 || unshare(CLONE_FILES) < 0) {
		l->error = errno;
		sem_post(&l->begun); /* l is gone then */
		return NULL;
	}
	close_between(0, own - 1);
	close_between(own + 1, INT_MAX);
	sem_post(&l->begun);
	for (;;)
		pause();
	return NULL;
}

/* How many descriptors the supervisor has room for from the start; RLIMIT_NOFILE is 1024 by default. */
#define DESCRIPTORS 1024

/*
 * Makes room for the descriptors of some 50 apps. In a process of several threads, such as the supervisor, the kernel
 * waits for an RCU grace period whenever it enlarges the table (expand_fdtable in fs/file.c): ten milliseconds in which
 * no thread gets a new descriptor. A process of one thread does not wait. Without the room the apps start more slowly.
 */
static void make_room_for_descriptors(void)
{
	int last = fcntl(channel, F_DUPFD_CLOEXEC, DESCRIPTORS - 1);

	if (last >= 0)
		close(last);
}

int first_start(pid_t *seed)
{
	struct lifeline l = { .error = 0 };
	int to_init[2], life[2], error;
	pthread_t thread;

	if (make_pair(SOCK_SEQPACKET, to_init) < 0 || make_pair(SOCK_STREAM, life) < 0)
		return -1; /* the program is about to end */
	l.supervisors = to_init[0];
	l.channel = to_init[1];
	l.own = life[0];
	l.inits = life[1];
	sem_init(&l.begun, 0, 0);
	error = start_thread(&thread, hold, &l);
	if (error == 0) {
		while (sem_wait(&l.begun) < 0)
			;
		error = l.error;
	}
	close(to_init[1]);
	close(life[0]);
	close(life[1]);
	*seed = l.seed;
	if (error == 0)
		return to_init[0];
	close(to_init[0]);
	errno = error;
	return -1;
}

static void __attribute__((constructor)) first(void)
{
	if (!is_stager())
		return;
	umask(022); /* whatever the daemon's is: files are made in the stager's root */
	enter_leaf();
	enter_mount_namespace();
	channel = first_start(&channels_seed);
	if (channel < 0)
		give_up("make the lifeline");
	make_room_for_descriptors();
}

/* Closes what the kernel lists of first to last. To try each number up to the limit takes half a second where a million
 * files may be open, and misses what is above a limit that has been lowered. */
static void close_listed(int first, int last)
{
	DIR *all;
	struct dirent *entry;

	close(first); /* all numbers may be taken: there must be one for the folder */
	all = opendir("/proc/thread-self/fd");
	if (!all)
		give_up("list descriptors");
	while ((entry = readdir(all))) {
		int fd = atoi(entry->d_name);

		if (fd >= first && fd <= last && fd != dirfd(all))
			close(fd);
	}
	closedir(all);
}

void close_between(int first, int last)
{
	if (first <= last && syscall(SYS_close_range, first, last, 0) < 0)
		close_listed(first, last);
}
