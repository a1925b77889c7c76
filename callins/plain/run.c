/*
 * The plain call of run: the command has no terminal, stdin is the null device, stdout and stderr are pipes or the
 * null device, and the settings are in a pipe that their writer has closed.
 */
#define _GNU_SOURCE
#include "plain.h"
#include "streams.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* The descriptor of the settings, the most bytes of plain ones, and how long their writer may keep the pipe open. */
#define SETTINGS 3
#define SETTINGS_MAX (64 * 1024)
#define SETTINGS_LIMIT_MS 100

/* The limits of callins/run.go: of a start, and of a start after a signal. */
#define START_LIMIT_MS 60000
#define SIGNAL_LIMIT_MS 1000

/* The descriptors that a call polls: the connection, the signals, and two of each stream. */
#define NPOLLED (2 + 2 * NOUTPUTS)

struct call {
	int connection;
	int settings; /* a sealed memfd */
	struct streams streams;
	sigset_t passed; /* the signals that go to the command */
	int signals;	 /* a signalfd for them */
	sigset_t before; /* the process's signal mask, for its end and for Go */
	int started;
	int code;      /* the command's, once it has ended; -1 before */
	int resized;   /* SIGWINCH came before the start */
	int signal;    /* another signal did; 0 for none */
	int64_t limit; /* the time until which the command has to start, in milliseconds */
};

static int64_t milliseconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Returns 1 for an app's name that JSON does not escape. */
static int is_plain_name(const char *app)
{
	const char *c;

	for (c = app; *c; c++)
		if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '-')
			return 0;
	return c != app && c - app < NAME_MAX;
}

/* Returns 1 for settings that ask for no terminal: no key can be "tty", in any case or with escaped letters. Daemons in
 * Go escape "&", "<" and ">". */
static int is_plain_settings(const char *text, size_t size)
{
	const char *escape = text;

	while ((escape = strstr(escape, "\\u")))
		if (strncmp(escape += 2, "00", 2) != 0 || escape[2] < '0' || escape[2] > '3')
			return 0;
	return strlen(text) == size && !strcasestr(text, "tty");
}

/* Returns how many bytes of settings there are, when there will be no more; -1 if that is not known. */
static int settings_size(void)
{
	int size;

	if (!(plain_wait(SETTINGS, 0, SETTINGS_LIMIT_MS) & POLLHUP) || ioctl(SETTINGS, FIONREAD, &size) < 0)
		return -1;
	return size <= SETTINGS_MAX ? size : -1;
}

/* Moves the settings into a sealed memfd. If they are not plain, descriptor 3 has them for Go, as they were or in the
 * memfd. Its pages are there before the settings leave the pipe: a full memory cannot lose them. */
static int take_settings(struct call *call)
{
	static char text[SETTINGS_MAX + 1];
	int size = settings_size(), memory;
	ssize_t n;
	size_t got = 0;

	if (size <= 0)
		return 0;
	memory = memfd_create("settings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memory < 0 || fallocate(memory, 0, 0, size) < 0) {
		close(memory);
		return 0;
	}
	while (got < (size_t)size && (n = read(SETTINGS, text + got, (size_t)size - got)) > 0)
		got += (size_t)n;
	if (write(memory, text, got) == (ssize_t)got && ftruncate(memory, (off_t)got) == 0 &&
	    fcntl(memory, F_ADD_SEALS, SEALS) == 0 && is_plain_settings(text, got)) {
		close(SETTINGS);
		call->settings = memory;
		return 1;
	}
	lseek(memory, 0, SEEK_SET);
	dup2(memory, SETTINGS);
	close(memory);
	return 0;
}

/* The signals are those of forwarded in callins/run.go, without a SIGHUP that is ignored, as notifyForwarded there. */
static int watch_signals(struct call *call)
{
	static const int passed[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH };
	struct sigaction hangup;
	size_t i;

	sigemptyset(&call->passed);
	for (i = 0; i < sizeof(passed) / sizeof(*passed); i++)
		sigaddset(&call->passed, passed[i]);
	if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN)
		sigdelset(&call->passed, SIGHUP);
	call->signals = signalfd(-1, &call->passed, SFD_CLOEXEC | SFD_NONBLOCK);
	return call->signals >= 0;
}

/* Sends the request. The signals that run passes to its command wait from here on. Returns 0 after an error: a
 * supervisor that has closed the connection has sent the reason first. */
static int ask(struct call *call, const char *app)
{
	const int *stdio = call->streams.stdio;
	int files[] = { call->settings, stdio[0], stdio[1], stdio[2] };
	char request[64 + NAME_MAX];
	int sent;

	sigprocmask(SIG_BLOCK, &call->passed, &call->before);
	signal(SIGPIPE, SIG_IGN); /* a reader that goes away ends its stream only */
	snprintf(request, sizeof(request), "{\"version\":4,\"call\":\"run\",\"app\":\"%s\"}", app);
	sent = plain_send(call->connection, request, files, sizeof(files) / sizeof(*files));
	close(call->settings);
	close_theirs(&call->streams);
	call->limit = milliseconds() + START_LIMIT_MS;
	return sent;
}

static void pass_signal(const struct call *call, int number)
{
	char note[32];

	snprintf(note, sizeof(note), "{\"signal\":%d}", number);
	plain_send(call->connection, note, NULL, 0);
}

/* Returns 1 if the call takes signals now. Until the command runs, one that may end the call is enough. */
static int takes_signals(const struct call *call)
{
	return call->started ? call->code < 0 : !call->signal;
}

/* Takes the signals that have come, and passes them on, or keeps them until the command runs. */
static void take_signals(struct call *call)
{
	struct signalfd_siginfo came;

	while (takes_signals(call) && read(call->signals, &came, sizeof(came)) == (ssize_t)sizeof(came)) {
		if (call->started)
			pass_signal(call, (int)came.ssi_signo);
		else if (came.ssi_signo == SIGWINCH)
			call->resized = 1;
		else {
			call->signal = (int)came.ssi_signo;
			call->limit = milliseconds() + SIGNAL_LIMIT_MS;
		}
	}
}

static void start(struct call *call)
{
	call->started = 1;
	if (call->resized)
		pass_signal(call, SIGWINCH);
	if (call->signal)
		pass_signal(call, call->signal);
}

/* Has signals end this process from now on. One that came before does not. */
static void release_signals(struct call *call)
{
	struct signalfd_siginfo late;

	take_signals(call);
	while (read(call->signals, &late, sizeof(late)) > 0)
		;
	sigprocmask(SIG_SETMASK, &call->before, NULL);
}

/* Returns the code in a packet that reports the command's end, or -1 for another packet. */
static int code_of(const char *text, ssize_t n)
{
	int value, size = 0;

	if (strcmp(text, "{\"kind\":\"exit\"}") == 0)
		return 0;
	if (sscanf(text, "{\"kind\":\"exit\",\"code\":%d}%n", &value, &size) == 1 && size == n)
		return value;
	return -1;
}

/* Takes the supervisor's next packet, or the end of the connection, by which all output is in the call's pipes. Returns
 * 1 if the call has ended: with call->code, or, at -1, by a packet that stays in the socket for Go. */
static int take_packet(struct call *call)
{
	char text[PACKET_MAX + 1];
	ssize_t n = recv(call->connection, text, PACKET_MAX, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0)
		return 0; /* after an error of the socket comes a packet or the end */
	text[n] = 0;
	if (call->code >= 0) {
		if (n > 0)
			call->code = -1;
		return 1;
	}
	if (!call->started && strcmp(text, "{\"kind\":\"started\"}") == 0)
		start(call);
	else if (!call->started || (call->code = code_of(text, n)) < 0)
		return 1;
	else
		release_signals(call);
	recv(call->connection, text, 1, 0);
	return 0;
}

/* Waits for the next event, until the command has to have started. Returns 0 if that time has passed. */
static int await(const struct call *call, struct pollfd *polled)
{
	int64_t left = call->limit - milliseconds();
	int i;

	polled[0] = (struct pollfd){ call->connection, POLLIN, 0 };
	polled[1] = (struct pollfd){ takes_signals(call) ? call->signals : -1, POLLIN, 0 };
	for (i = 0; i < NOUTPUTS; i++)
		poll_output(&call->streams.outputs[i], polled + 2 + 2 * i);
	return poll(polled, NPOLLED, call->started ? -1 : left > 0 ? (int)left : 0) != 0;
}

/* Carries the call on until it ends. */
static void carry(struct call *call)
{
	struct pollfd polled[NPOLLED];
	int i;

	while (await(call, polled)) {
		take_signals(call);
		for (i = 0; i < NOUTPUTS; i++)
			copy_polled(&call->streams.outputs[i], polled + 2 + 2 * i);
		if (polled[0].revents && take_packet(call))
			return;
	}
}

/* Ends the call's part in C, with the output that is in its pipes. */
static void end(struct call *call)
{
	int i;

	if (call->code < 0)
		release_signals(call);
	for (i = 0; i < NOUTPUTS; i++)
		finish_output(&call->streams.outputs[i]);
}

void plain_run(const char *app)
{
	struct call call = { .connection = -1, .signals = -1, .code = -1 };

	if (!is_plain_name(app))
		return;
	if (!make_streams(&call.streams) || !watch_signals(&call) || (call.connection = plain_dial()) < 0 ||
	    !take_settings(&call)) {
		close_streams(&call.streams);
		close(call.signals);
		close(call.connection);
		return;
	}
	if (ask(&call, app))
		carry(&call);
	end(&call);
	if (call.code >= 0)
		_exit(call.code);
	plain_begun.connection = call.connection;
	plain_begun.signal = call.started ? 0 : call.signal;
}
