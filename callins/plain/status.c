/* The plain call of status. */
#define _GNU_SOURCE
#include "plain.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The largest document (callins/document.go), in bytes. */
#define DOCUMENT_MAX (16 << 20)

/* What came with a packet. */
struct passed {
	int file; /* -1 for none */
	int pid;  /* that the sender has named, as a number of this process's PID namespace; 0 for none */
};

/* Receives one packet. Returns 0 if it cannot. Another descriptor than the one that a document has is closed by the
 * end of the process. */
static int receive(int connection, char *text, struct passed *passed)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec part = { text, PACKET_MAX };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
				  .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *header;
	struct ucred credentials;

	*passed = (struct passed){ -1, 0 };
	if (n <= 0)
		return 0;
	text[n] = 0;
	for (header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
		if (header->cmsg_type == SCM_RIGHTS)
			memcpy(&passed->file, CMSG_DATA(header), sizeof(int));
		if (header->cmsg_type == SCM_CREDENTIALS) {
			memcpy(&credentials, CMSG_DATA(header), sizeof(credentials));
			passed->pid = credentials.pid;
		}
	}
	return 1;
}

/* Tells the supervisor which number its process has here. Returns 0 if that fails. */
static int name_process(int connection, int pid)
{
	char note[32];

	snprintf(note, sizeof(note), "{\"process\":%d}", pid);
	return plain_send(connection, note, NULL, 0);
}

/* Writes a document to stdout and ends the process. Returns if it is not one, or if nothing can be written. */
static void print(int document)
{
	int seals = fcntl(document, F_GET_SEALS);
	struct stat info;
	const char *text;
	size_t size, written = 0;

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(document, &info) < 0 || info.st_size > DOCUMENT_MAX)
		return;
	size = (size_t)info.st_size;
	text = mmap(NULL, size, PROT_READ, MAP_PRIVATE, document, 0);
	if (text == MAP_FAILED)
		return;
	while (written < size) {
		ssize_t n = write(STDOUT_FILENO, text + written, size - written);

		if (n >= 0)
			written += (size_t)n;
		else if (errno == EAGAIN)
			plain_wait(STDOUT_FILENO, POLLOUT, -1);
		else if (written == 0)
			return;
		else {
			fprintf(stderr, "status: write output: %s\n", strerror(errno));
			_exit(1);
		}
	}
	_exit(0);
}

/* Asks for the document and prints it. Returns if that fails. */
static void ask(int connection)
{
	char text[PACKET_MAX + 1];
	struct passed passed;

	if (!plain_send(connection, "{\"version\":4,\"call\":\"status\"}", NULL, 0))
		return;
	while (receive(connection, text, &passed)) {
		if (strcmp(text, "{\"kind\":\"document\"}") == 0 && passed.file >= 0)
			print(passed.file);
		if (strcmp(text, "{\"kind\":\"process\"}") != 0 || !name_process(connection, passed.pid))
			return;
	}
}

void plain_status(void)
{
	int connection = plain_dial(), on = 1;

	/* The number says that none of 0, 1 and 2 is free, which the document would get. */
	if (connection > STDERR_FILENO && setsockopt(connection, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0)
		ask(connection);
	close(connection);
}
