/*
 * The streams of a plain command. It gets pipes of its own (callins/between.go), from which the call copies to the
 * caller's, as callins/copying.go does: what the caller's reader does not read waits in the pipes, and a reader that
 * goes away ends its stream.
 */
#define _GNU_SOURCE
#include "streams.h"

#include "plain.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* The sizes of callins/copying.go. */
#define COPY_MAX (1 << 20)
#define PIPE_SIZE (256 << 10)

static int is_null(const struct stat *info)
{
	return S_ISCHR(info->st_mode) && info->st_rdev == makedev(1, 3);
}

static void close_output(struct output *output)
{
	if (output->from >= 0)
		close(output->from);
	output->from = -1;
}

static void widen(int pipe)
{
	int size = fcntl(pipe, F_GETPIPE_SZ);

	if (size >= 0 && size < PIPE_SIZE)
		fcntl(pipe, F_SETPIPE_SZ, PIPE_SIZE);
}

/* Makes the command's pipe for the caller's stream, if that is a pipe. */
static int make_output(struct streams *streams, int stream, const struct stat *info)
{
	struct output *output = &streams->outputs[stream - 1];
	int ends[2];

	if (!S_ISFIFO(info->st_mode) || pipe2(ends, O_CLOEXEC) < 0)
		return 0;
	output->from = ends[0];
	output->to = stream;
	streams->stdio[stream] = ends[1];
	widen(output->from);
	widen(output->to);
	/* A first try, of an empty pipe, shows that the caller's stream can be written, and by splice(2). */
	return splice(output->from, NULL, output->to, NULL, 1, SPLICE_F_NONBLOCK) < 0 && errno == EAGAIN;
}

int make_streams(struct streams *streams)
{
	struct stat info[3];
	int i;

	*streams = (struct streams){ { 0, 1, 2 }, { { -1, -1, 0 }, { -1, -1, 0 } } };
	for (i = 0; i < 3; i++)
		if (fstat(i, &info[i]) < 0)
			return 0;
	if (!is_null(&info[0]) || (!is_null(&info[1]) && !make_output(streams, 1, &info[1])))
		return 0;
	if (info[1].st_dev == info[2].st_dev && info[1].st_ino == info[2].st_ino)
		streams->stdio[2] = streams->stdio[1]; /* one pipe keeps the order of what is written */
	else if (!is_null(&info[2]))
		return make_output(streams, 2, &info[2]);
	return 1;
}

void close_theirs(struct streams *streams)
{
	int i;

	for (i = 1; i < 3; i++)
		if (streams->stdio[i] > 2 && (i == 1 || streams->stdio[i] != streams->stdio[1]))
			close(streams->stdio[i]);
}

void close_streams(struct streams *streams)
{
	int i;

	close_theirs(streams);
	for (i = 0; i < NOUTPUTS; i++)
		close_output(&streams->outputs[i]);
}

/* Copies once. Returns the number of bytes; 0 after an error or an end, which close the stream, and if there is
 * nothing to read or, with full set, no room to write. */
static ssize_t copy(struct output *output)
{
	ssize_t n = splice(output->from, NULL, output->to, NULL, COPY_MAX, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	int again = n < 0 && (errno == EAGAIN || errno == EINTR);

	output->full = again && plain_wait(output->from, POLLIN, 0); /* POLLHUP: the end comes after the room, too */
	if (n <= 0 && !again)
		close_output(output);
	return n > 0 ? n : 0;
}

void poll_output(const struct output *output, struct pollfd *polled)
{
	polled[0] = (struct pollfd){ output->full ? -1 : output->from, POLLIN, 0 };
	polled[1] = (struct pollfd){ output->from < 0 ? -1 : output->to, output->full ? POLLOUT : 0, 0 };
}

void copy_polled(struct output *output, const struct pollfd *polled)
{
	if (polled[1].revents & POLLERR)
		close_output(output); /* the command's next write fails */
	else if (polled[0].revents || polled[1].revents)
		copy(output);
}

void finish_output(struct output *output)
{
	ssize_t n = 1;

	while (output->from >= 0 && (n > 0 || output->full)) {
		n = copy(output);
		if (output->full && (plain_wait(output->to, POLLOUT, -1) & POLLERR))
			close_output(output);
	}
	close_output(output);
}
