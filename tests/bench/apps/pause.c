// An app that does nothing until it is told to end.
#include <signal.h>
#include <stddef.h>

int main(void) {
	sigset_t end;

	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigprocmask(SIG_BLOCK, &end, NULL);
	return sigwaitinfo(&end, NULL) == SIGTERM ? 0 : 1;
}
