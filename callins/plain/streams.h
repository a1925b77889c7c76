/* The streams of a plain command; in streams.c. */
#ifndef STAGER_STREAMS_H
#define STAGER_STREAMS_H

#include <poll.h>

/* A stream of the command, which is copied to one of the caller's pipes. */
struct output {
	int from; /* the command's pipe; -1 for none, or when no more is copied */
	int to;
	int full; /* the caller has to read before more can be copied */
};

#define NOUTPUTS 2

struct streams {
	int stdio[3]; /* the command's: its ends of the pipes, or the null device */
	struct output outputs[NOUTPUTS];
};

/* Makes the command's streams for the caller's. Returns 0 if these are not plain, or if a pipe cannot be made; also
 * then the caller of this function calls close_streams. */
int make_streams(struct streams *streams);

/* Closes the command's ends of the pipes: a pipe ends when the last copy of its end is closed. */
void close_theirs(struct streams *streams);

/* Closes all that make_streams has made. */
void close_streams(struct streams *streams);

/* Fills in the two entries that a stream has for poll(2), and copies what these have found. */
void poll_output(const struct output *output, struct pollfd *polled);
void copy_polled(struct output *output, const struct pollfd *polled);

/* Copies what is left in the pipe of an ended command, whose other end the supervisor closes. Waits for the caller's
 * reader. */
void finish_output(struct output *output);

#endif
