/* What getaddrinfo says of each name: a line "NAME ADDRESS…", sorted by nobody, or "NAME error CODE". */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int main(int count, char **names)
{
	for (int i = 1; i < count; i++) {
		struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found, *one;
		int error = getaddrinfo(names[i], NULL, &hints, &found);
		printf("%s", names[i]);
		if (error) {
			printf(" error %d\n", error);
			continue;
		}
		for (one = found; one; one = one->ai_next) {
			char text[128];
			getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST);
			printf(" %s", text);
		}
		printf("\n");
		freeaddrinfo(found);
	}
	return 0;
}
