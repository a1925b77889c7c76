// An app that runs and does nothing.
#include <unistd.h>

int main(void) {
	for (;;)
		pause();
}
