/*
 * Feeds init with packets from standard input; FuzzMessages compiles it with sanitizers. init is process 1 of a new PID
 * namespace, and its end is this program's: 0 when the channel has ended, another number by a sanitizer.
 *
 * The input is packets. Each has three bytes: its kind, the number of its descriptors, and that of the bytes which
 * follow, for the rest of the message; with 128 in the last, these bytes are all that is sent. The descriptors are of
 * KINDS in turn, plans in memory among them.
 */
#define _GNU_SOURCE
#include "child.h"
#include "first.h"
#include "init.h"

#include <err.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KINDS = 4 };

static int must(int result, const char *what)
{
	if (result < 0)
		err(1, "%s", what);
	return result;
}

static int memory(const void *content, size_t size)
{
	int fd = must(memfd_create("plan", MFD_CLOEXEC), "memfd_create");

	must((int)write(fd, content, size), "write");
	return fd;
}

/* Sends a packet. Its last descriptor is files[1], a whole plan. */
static void feed(int channel, const void *data, size_t size, const int *files, int n)
{
	union { struct cmsghdr align; char space[CMSG_SPACE(INIT_PACKET_FILES * sizeof(int))]; } control;
	struct iovec part = { (void *)(uintptr_t)data, size };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	int sent[INIT_PACKET_FILES], i;

	for (i = 0; i < n; i++)
		sent[i] = files[(n - i) % KINDS];
	if (n > 0) {
		memset(&control, 0, sizeof(control));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
		memcpy(CMSG_DATA(&control.align), sent, (size_t)n * sizeof(int));
	}
	sendmsg(channel, &message, MSG_NOSIGNAL); /* init may have ended */
}

/* Reads init's answers until the channel's end, so that they do not fill it. */
static pid_t drain(int channel, int inits)
{
	char answer[256];
	pid_t pid = must(fork(), "fork");

	if (pid == 0) {
		close(inits);
		while (read(channel, answer, sizeof(answer)) > 0)
			;
		_exit(0);
	}
	return pid;
}

static void feed_all(int channel, const int *files)
{
	unsigned char head[3], data[256];

	while (fread(head, sizeof(head), 1, stdin) == 1) {
		struct init_message m = { .kind = head[0] };

		memset(data, 0, sizeof(data));
		memcpy(data, &m, sizeof(m));
		if (fread(data + sizeof(m.kind), 1, head[2] % 128, stdin) != head[2] % 128)
			return;
		feed(channel, data, head[2] & 128 ? head[2] % 128 : sizeof(m), files, head[1] % (INIT_PACKET_FILES + 1));
	}
}

int main(void)
{
	struct child_plan plan = { .nfiles = 4 }; /* the child ends: its shim has no plan */
	int channel[2], life[2], kinds[KINDS], null, status;
	pid_t init, drains;

	must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel), "socketpair");
	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, life), "socketpair");
	null = must(open("/dev/null", O_RDWR | O_CLOEXEC), "open /dev/null");
	drains = drain(channel[0], channel[1]);
	must(unshare(CLONE_NEWPID), "unshare");
	init = must(fork(), "fork");
	if (init == 0) {
		int files[INIT_NFILES] = { channel[1], life[1], null, -1 };

		must(unshare(CLONE_NEWNS), "unshare");
		init_live(CLONE_NEWPID, files);
	}
	close(channel[1]);
	close(life[1]);
	kinds[0] = null;
	kinds[1] = memory(&plan, sizeof(plan));
	kinds[2] = memory(&plan, 7);
	kinds[3] = channel[0];
	feed_all(channel[0], kinds);
	shutdown(channel[0], SHUT_RDWR);
	must(waitpid(init, &status, 0), "wait");
	must(waitpid(drains, NULL, 0), "wait");
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	return 128 + WTERMSIG(status);
}
