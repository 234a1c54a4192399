/* Sends the first packets of TCP connections and prints the nanoseconds one takes: the least of all rounds.
 *
 *     first_packets SOURCE FILE ROUNDS PACKETS
 *
 * FILE has a destination a line, SOURCE is of the same family; the destination port is 80. No two packets of a process
 * have the same source address and port. On a path of veth pairs sendto() returns when the packet has been forwarded and
 * received, so its duration is the processor time of the whole path.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { MOST_DESTINATIONS = 65536, PORTS = 50000, FIRST_PORT = 10000, TCP_BYTES = 20, SYN = 2 };

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

static double now(void)
{
	struct timespec moment;
	clock_gettime(CLOCK_MONOTONIC, &moment);
	return moment.tv_sec * 1e9 + moment.tv_nsec;
}

int main(int argc, char **argv)
{
	if (argc != 5) {
		fprintf(stderr, "usage: first_packets SOURCE FILE ROUNDS PACKETS\n");
		return 2;
	}
	int family = strchr(argv[1], ':') ? AF_INET6 : AF_INET, length = family == AF_INET ? 4 : 16;
	int header = family == AF_INET ? 20 : 40, count = 0, rounds = atoi(argv[3]), packets = atoi(argv[4]);
	unsigned char packet[60] = {0}, *addresses = packet + header - 2 * length, *segment = packet + header;
	char line[64];
	FILE *file = fopen(argv[2], "r");
	int fd = socket(family, SOCK_RAW, IPPROTO_RAW);
	if (fd < 0 || !file || inet_pton(family, argv[1], addresses) != 1) {
		perror("first_packets");
		return 1;
	}
	while (count < MOST_DESTINATIONS && fgets(line, sizeof line, file)) {
		line[strcspn(line, "\n")] = 0;
		if (inet_pton(family, line, destinations[count++]) != 1)
			return 1;
	}
	if (family == AF_INET) {
		packet[0] = 0x45, packet[8] = 64, packet[9] = IPPROTO_TCP;
		put16(packet + 2, header + TCP_BYTES);
	} else {
		packet[0] = 0x60, packet[6] = IPPROTO_TCP, packet[7] = 64;
		put16(packet + 4, TCP_BYTES);
	}
	put16(segment + 2, 80);
	segment[12] = TCP_BYTES / 4 << 4, segment[13] = SYN;
	put16(segment + 14, 65535);
	unsigned first = addresses[length - 2] << 8 | addresses[length - 1];
	double least = 1e18;
	unsigned long sent = 0;
	for (int round = 0; round < rounds; round++) {
		double began = now();
		for (int each = 0; each < packets; each++, sent++) {
			struct sockaddr_in6 to6 = {.sin6_family = AF_INET6};
			struct sockaddr_in to4 = {.sin_family = AF_INET};
			const unsigned char *destination = destinations[sent * 7919 % count];
			put16(addresses + length - 2, first + sent / PORTS);
			memcpy(addresses + length, destination, length);
			put16(segment, FIRST_PORT + sent % PORTS);
			put16(segment + 4, sent), put16(segment + 6, sent >> 16);
			write_checksum(segment, addresses, 2 * length);
			memcpy(family == AF_INET ? (void *)&to4.sin_addr : (void *)&to6.sin6_addr, destination, length);
			sendto(fd, packet, header + TCP_BYTES, 0, family == AF_INET ? (void *)&to4 : (void *)&to6,
			       family == AF_INET ? sizeof to4 : sizeof to6);
		}
		double each = (now() - began) / packets;
		least = each < least ? each : least;
	}
	printf("%.0f\n", least);
	return 0;
}
