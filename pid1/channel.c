/* init's side of the channel to the supervisor (init.h). */
#define _GNU_SOURCE
#include "first.h"
#include "init.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

union control { /* aligned as cmsg(3) says */
	struct cmsghdr align;
	char space[CMSG_SPACE(INIT_PACKET_FILES * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

int init_receive(int channel, struct init_message *m, int *files, int n)
{
	union control control;
	struct iovec data = { m, sizeof(*m) };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int)),
	};
	struct cmsghdr *head;
	ssize_t got;
	int count = 0;

	do
		got = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got != (ssize_t)sizeof(*m))
		return -1;
	head = CMSG_FIRSTHDR(&message);
	if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS) {
		count = (int)((head->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(files, CMSG_DATA(head), (size_t)count * sizeof(int));
	}
	return count;
}

/* How long init waits for the kernel to have memory again for a message, or room for a descriptor under way. */
#define MEMORY_RETRY_MS 10

/* A supervisor that cannot end has a channel which nobody reads: only the lifeline's end tells. Returns 0 once the
 * message is sent. */
static int send_message(int channel, int lifeline, const struct msghdr *message)
{
	struct pollfd polled[] = { { lifeline, 0, 0 }, { channel, POLLOUT, 0 } };

	while (!polled[0].revents) {
		if (sendmsg(channel, message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
			return 0;
		if (errno == EAGAIN)
			poll(polled, 2, -1);
		else if (errno == ENOBUFS || errno == ENOMEM || errno == ETOOMANYREFS)
			poll(polled, 1, MEMORY_RETRY_MS);
		else if (errno != EINTR)
			break; /* the supervisor has ended */
	}
	return -1;
}

int init_send(int channel, int lifeline, const struct init_message *m)
{
	struct iovec data = { (void *)(uintptr_t)m, sizeof(*m) };
	struct msghdr message = { .msg_iov = &data, .msg_iovlen = 1 };

	return send_message(channel, lifeline, &message);
}

void init_send_started(int channel, int lifeline, pid_t pid, int pidfd)
{
	struct init_message m = { .kind = INIT_STARTED, .number = pid };
	struct ucred who = { pid, 0, 0 };
	union control control;
	struct iovec data = { &m, sizeof(m) };
	struct msghdr message = {
		.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(who)),
	};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	memset(&control, 0, sizeof(control));
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &pidfd, sizeof(int));
	head = CMSG_NXTHDR(&message, head);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_CREDENTIALS;
	head->cmsg_len = CMSG_LEN(sizeof(who));
	memcpy(CMSG_DATA(head), &who, sizeof(who));
	send_message(channel, lifeline, &message);
}
