// A program that writes bytes to its stdout, or reads some from its stdin.
//
// usage: stream out|turn BYTES, stream in BYTES
// "turn" waits for one byte on stdin before it writes.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char block[64 << 10];

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	int in = strcmp(argv[1], "in") == 0;
	if (strcmp(argv[1], "turn") == 0 && read(0, block, 1) != 1)
		return 1;
	for (size_t left = strtoul(argv[2], NULL, 10); left > 0;) {
		size_t most = left < sizeof(block) ? left : sizeof(block);
		ssize_t n = in ? read(0, block, most) : write(1, block, most);
		if (n <= 0)
			return 1;
		left -= n;
	}
	return 0;
}
