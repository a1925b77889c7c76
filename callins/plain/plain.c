/*
 * The callers' side of run and status, for the plain case: a constructor of the C library makes the whole call before
 * the program's Go runtime would start. That start takes 3 ms, as long as all the rest of the call.
 *
 * What is not plain is left to the call-ins in Go: the functions here return, and the program goes on to its main
 * function, as if nothing had been done. So is every error, which one place words. Two exceptions: Go takes over the
 * connection of a call of run that the supervisor has got already (struct begun), and status says itself that it could
 * not write all of its output.
 */
#define _GNU_SOURCE
#include "plain.h"

#include "part.h"

#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* The most descriptors in a packet (callins/protocol.go). */
#define FILES_MAX 4

struct begun plain_begun = { -1, 0 };

int plain_dial(void)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = CONTROL_SOCKET };
	struct timeval limit = { .tv_sec = 2 };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) == 0 &&
	    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0 &&
	    connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

int plain_send(int connection, const char *text, const int *files, size_t nfiles)
{
	struct iovec part = { (void *)text, strlen(text) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(FILES_MAX * sizeof(int))];
	} control;

	if (nfiles > 0) {
		memset(&control, 0, sizeof(control));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(nfiles * sizeof(int));
		memcpy(CMSG_DATA(&control.header), files, nfiles * sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(nfiles * sizeof(int));
	}
	return sendmsg(connection, &message, MSG_NOSIGNAL) >= 0;
}

short plain_wait(int fd, short events, int limit_ms)
{
	struct pollfd polled = { fd, events, 0 };

	return poll(&polled, 1, limit_ms) > 0 ? polled.revents : 0;
}

static void __attribute__((constructor)) plain(void)
{
	char line[PATH_MAX];
	size_t n = read_arguments(line, sizeof(line)), first = n > 0 ? strlen(line) + 1 : 0;
	const char *name;

	if (n == 0)
		return;
	name = base_name(line);
	if (strcmp(name, STATUS) == 0 && first == n)
		plain_status();
	if (strcmp(name, RUN) == 0 && first < n && first + strlen(line + first) + 1 == n)
		plain_run(line + first);
}
