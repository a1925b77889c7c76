// An app that waits for SIGUSR1, writes lines of 100 bytes and the line "END",
// and waits until it is killed.
//
// usage: writer LINES BLOCK
// BLOCK is the size of a write in bytes; 100 is line by line.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { line = 100 };

static void all(const char *p, size_t n) {
	while (n > 0) {
		ssize_t done = write(1, p, n);
		if (done < 0)
			exit(1);
		p += done;
		n -= done;
	}
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	size_t left = line * strtoul(argv[1], NULL, 10);
	size_t block = strtoul(argv[2], NULL, 10);

	sigset_t go;
	int got;
	sigemptyset(&go);
	sigaddset(&go, SIGUSR1);
	sigprocmask(SIG_BLOCK, &go, NULL);

	// A buffer of whole lines from which a write may begin at any place of a line.
	char *text = malloc(block + line);
	memset(text, 'x', block + line);
	for (size_t i = line - 1; i < block + line; i += line)
		text[i] = '\n';

	sigwait(&go, &got);
	size_t at = 0;
	while (left > 0) {
		size_t n = left < block ? left : block;
		all(text + at, n);
		at = (at + n) % line;
		left -= n;
	}
	all("END\n", 4);
	for (;;)
		pause();
}
