/*
 * Makes system calls inside a test's container and says what came of them.
 * Each argument is one: ABI:NUMBER, without arguments to the call, where ABI is
 * native, thread (native, in a second thread), i386 or x32; or "euid", or
 * "bind", which listens on port 80.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static long native(long number)
{
	long r = syscall(number, 0, 0, 0, 0, 0, 0);

	return r < 0 ? -errno : r;
}

static void *in_thread(void *number)
{
	return (void *)native((long)number);
}

static long threaded(long number)
{
	pthread_t thread;
	void *result;

	if (pthread_create(&thread, NULL, in_thread, (void *)number) != 0)
		return -EAGAIN;
	pthread_join(thread, &result);
	return (long)result;
}

static long i386(long number)
{
#ifdef __x86_64__
	long r;

	__asm__ volatile("int $0x80" : "=a"(r) : "a"(number), "b"(0), "c"(0), "d"(0), "S"(0), "D"(0)
			 : "memory", "r8", "r9", "r10", "r11");
	return (int)r;
#else
	(void)number;
	return -ENOSYS;
#endif
}

static long bind_port(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(80) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	return fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : 0;
}

static long run(const char *call)
{
	const char *number = strchr(call, ':');
	long n = number ? atol(number + 1) : 0;

	if (strcmp(call, "euid") == 0)
		return (long)geteuid();
	if (strcmp(call, "bind") == 0)
		return bind_port();
	if (strncmp(call, "i386:", 5) == 0)
		return i386(n);
	if (strncmp(call, "x32:", 4) == 0)
		return native(n | 0x40000000);
	if (strncmp(call, "thread:", 7) == 0)
		return threaded(n);
	return native(n);
}

int main(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++) {
		char line[128];
		int n = snprintf(line, sizeof(line), "%s %ld\n", argv[i], run(argv[i]));

		if (write(1, line, (size_t)n) != n)
			return 1;
	}
	return 0;
}
