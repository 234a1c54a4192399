/* Sends the first packets of TCP connections, from several network namespaces in turn, and prints the nanoseconds of
 * processor time that one takes in each: the median of all rounds.
 *
 *     first_packets SOURCE FILE ROUNDS PACKETS NAMESPACE...
 *
 * A round is PACKETS from every namespace, so that whatever else happens on the machine meets all of them alike.
 *
 * FILE has a destination a line, SOURCE is an address of every namespace, or `any`, where the kernel chooses one for each packet, as
 * it does for programs that do not care. The checksum is then wrong, which nobody looks at where packets begin. The destination
 * port is 80. No two packets to a namespace have the same source port. On a path of veth pairs sendto() returns when the packet has been forwarded and
 * received, so its processor time is that of the whole path.
 *
 * The kernel writes the IP header, so that routes are looked for as for any socket. With a header of one's own
 * (FLOWI_FLAG_KNOWN_NH) it makes a destination for each packet whose route has no gateway, as those of local addresses.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_DESTINATIONS = 65536, MOST_NAMESPACES = 24, PORTS = 50000, FIRST_PORT = 10000, TCP_BYTES = 20, SYN = 2 };

static unsigned char destinations[MOST_DESTINATIONS][16];

static uint32_t add_words(uint32_t sum, const unsigned char *data, int bytes)
{
	for (int at = 0; at < bytes; at += 2)
		sum += (uint32_t)data[at] << 8 | data[at + 1];
	return sum;
}

static void put16(unsigned char *at, unsigned value)
{
	at[0] = value >> 8;
	at[1] = value;
}

/* RFC 9293: the checksum covers both addresses, the protocol, the length and the segment. */
static void write_checksum(unsigned char *segment, const unsigned char *addresses, int bytes)
{
	put16(segment + 16, 0);
	uint32_t sum = add_words(add_words(IPPROTO_TCP + TCP_BYTES, addresses, bytes), segment, TCP_BYTES);
	sum = (sum & 0xffff) + (sum >> 16);
	put16(segment + 16, ~((sum & 0xffff) + (sum >> 16)));
}

/* Of this thread: what others do on the processor meanwhile is not counted. */
static double now(void)
{
	struct timespec moment;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &moment);
	return moment.tv_sec * 1e9 + moment.tv_nsec;
}

static int compare(const void *one, const void *other)
{
	double difference = *(const double *)one - *(const double *)other;
	return difference < 0 ? -1 : difference > 0;
}

static socklen_t fill(struct sockaddr_storage *to, int family, const unsigned char *address)
{
	memset(to, 0, sizeof *to);
	to->ss_family = family;
	if (family == AF_INET) {
		memcpy(&((struct sockaddr_in *)to)->sin_addr, address, 4);
		return sizeof(struct sockaddr_in);
	}
	memcpy(&((struct sockaddr_in6 *)to)->sin6_addr, address, 16);
	return sizeof(struct sockaddr_in6);
}

/* A raw socket stays in the namespace it was opened in. */
static int open_inside(const char *path, int family, const unsigned char *source)
{
	struct sockaddr_storage from;
	int namespace = open(path, O_RDONLY), opened;
	if (namespace < 0 || setns(namespace, CLONE_NEWNET))
		return -1;
	close(namespace);
	opened = socket(family, SOCK_RAW, IPPROTO_TCP);
	if (source && bind(opened, (struct sockaddr *)&from, fill(&from, family, source)))
		return -1;
	return opened;
}

int main(int argc, char **argv)
{
	if (argc < 6 || argc > 5 + MOST_NAMESPACES) {
		fprintf(stderr, "usage: first_packets SOURCE FILE ROUNDS PACKETS NAMESPACE...\n");
		return 2;
	}
	int ways = argc - 5, sockets[MOST_NAMESPACES];
	int count = 0, rounds = atoi(argv[3]), packets = atoi(argv[4]), chosen = strcmp(argv[1], "any");
	/* Both addresses, for the checksum only, and the segment. */
	unsigned char addresses[32] = {0}, segment[TCP_BYTES] = {0};
	char line[64] = "";
	FILE *file = fopen(argv[2], "r");
	double *times = calloc((size_t)ways * rounds, sizeof *times);
	if (!file || !times || !fgets(line, sizeof line, file)) {
		perror("first_packets");
		return 1;
	}
	int family = strchr(line, ':') ? AF_INET6 : AF_INET, length = family == AF_INET ? 4 : 16;
	if (chosen && inet_pton(family, argv[1], addresses) != 1)
		return 1;
	if ((long)rounds * packets > PORTS) {
		fprintf(stderr, "first_packets: at most %d packets, one for each source port\n", PORTS);
		return 2;
	}
	for (int way = 0; way < ways; way++)
		if ((sockets[way] = open_inside(argv[5 + way], family, chosen ? addresses : NULL)) < 0) {
			perror(argv[5 + way]);
			return 1;
		}
	do {
		line[strcspn(line, "\n")] = 0;
		if (inet_pton(family, line, destinations[count++]) != 1)
			return 1;
	} while (count < MOST_DESTINATIONS && fgets(line, sizeof line, file));
	put16(segment + 2, 80);
	segment[12] = TCP_BYTES / 4 << 4, segment[13] = SYN;
	put16(segment + 14, 65535);
	/* Other work would leave its own data in the processor's caches between two rounds. Not allowed everywhere. */
	struct sched_param ahead = {.sched_priority = 1};
	sched_setscheduler(0, SCHED_FIFO, &ahead);
	for (int turn = 0; turn < rounds * ways; turn++) {
		/* Each round begins with another namespace, so that none always comes behind the same. */
		int round = turn / ways, way = (turn + round) % ways;
		double began = now();
		for (int each = 0; each < packets; each++) {
			unsigned long sent = (unsigned long)round * packets + each;
			const unsigned char *destination = destinations[sent * 7919 % count];
			struct sockaddr_storage to;
			socklen_t bytes = fill(&to, family, destination);
			memcpy(addresses + length, destination, length);
			put16(segment, FIRST_PORT + sent);
			put16(segment + 4, sent), put16(segment + 6, sent >> 16);
			write_checksum(segment, addresses, 2 * length);
			sendto(sockets[way], segment, TCP_BYTES, 0, (void *)&to, bytes);
		}
		times[way * rounds + round] = (now() - began) / packets;
	}
	for (int way = 0; way < ways; way++) {
		qsort(times + way * rounds, rounds, sizeof *times, compare);
		printf("%.0f\n", times[way * rounds + rounds / 2]);
	}
	return 0;
}
