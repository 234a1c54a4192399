/* Sends packets of established connections, by several routers in turn, and prints what they take: a line for each router, with the
 * nanoseconds of a datagram, of a request and its answer on a TCP connection, and of a kilobyte in a stream. Medians of all rounds.
 *
 *     established CLOCK ROUNDS COUNT CLIENT,SERVER,ADDRESS,TCP_PORT,UDP_PORT...
 *
 * CLIENT and SERVER are paths of network namespaces. A server listens at ports 8080 (TCP) and 8081 (UDP) of all its addresses. A round is
 * COUNT datagrams, requests and pieces of 64 kB by each router, so that whatever else happens on the machine meets all of them alike.
 *
 * One thread is client and server: on a path of veth pairs a call returns when the packet has been forwarded and received, so that its time
 * is that of the whole path with both sockets, and nobody has to be woken. CLOCK is `thread`, its processor time; or `wall`, on kernels
 * that do not count the time of interrupts for the thread that they interrupt (CONFIG_IRQ_TIME_ACCOUNTING).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WAYS = 16, KINDS = 3, DATAGRAM = 64, PIECE = 65536, BUFFER = 1 << 22, TCP_PORT = 8080, UDP_PORT = 8081 };

struct way {
	int datagrams, received, stream, accepted;
};

static clockid_t clock_used = CLOCK_THREAD_CPUTIME_ID;
static char bytes[PIECE];

static double now(void)
{
	struct timespec moment;
	clock_gettime(clock_used, &moment);
	return moment.tv_sec * 1e9 + moment.tv_nsec;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int compare(const void *one, const void *other)
{
	double difference = *(const double *)one - *(const double *)other;
	return difference < 0 ? -1 : difference > 0;
}

static socklen_t fill(struct sockaddr_storage *to, const char *text, int port)
{
	struct sockaddr_in *four = (void *)to;
	struct sockaddr_in6 *six = (void *)to;
	memset(to, 0, sizeof *to);
	if (strchr(text, ':')) {
		*six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
		inet_pton(AF_INET6, text, &six->sin6_addr);
		return sizeof *six;
	}
	*four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
	inet_pton(AF_INET, text, &four->sin_addr);
	return sizeof *four;
}

/* Sockets stay in the namespace in which they were opened. */
static void enter(const char *path)
{
	int namespace = open(path, O_RDONLY);
	if (namespace < 0 || setns(namespace, CLONE_NEWNET))
		fail(path);
	close(namespace);
}

/* Room for a round; and an error, where something would wait for ever. */
static void adjust(int made, int type)
{
	int one = 1, big = BUFFER;
	struct timeval longest = {.tv_sec = 10};
	setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	setsockopt(made, SOL_SOCKET, SO_RCVBUFFORCE, &big, sizeof big);
	setsockopt(made, SOL_SOCKET, SO_SNDBUFFORCE, &big, sizeof big);
	setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
	setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
	if (type == SOCK_STREAM)
		setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	else {
		setsockopt(made, IPPROTO_IP, IP_PKTINFO, &one, sizeof one);
		setsockopt(made, IPPROTO_IPV6, IPV6_RECVPKTINFO, &one, sizeof one);
		/* To the kernel an address that is local by a route is no address of the host in IPv6. */
		setsockopt(made, IPPROTO_IPV6, IPV6_FREEBIND, &one, sizeof one);
	}
}

static int opened(const char *address, int port, int type, int to_connect)
{
	struct sockaddr_storage place;
	socklen_t length = fill(&place, address, port);
	int made = socket(place.ss_family, type, 0);
	if (made < 0)
		fail("socket");
	adjust(made, type);
	if ((to_connect ? connect : bind)(made, (void *)&place, length))
		fail(address);
	return made;
}

static void receive_all(int from, size_t wanted)
{
	for (ssize_t got; wanted; wanted -= got)
		if ((got = recv(from, bytes, wanted < PIECE ? wanted : PIECE, 0)) <= 0)
			fail("recv");
}

static void send_all(int to, size_t wanted)
{
	for (ssize_t sent; wanted; wanted -= sent)
		if ((sent = send(to, bytes, wanted, 0)) <= 0)
			fail("send");
}

static void request(int client, int server)
{
	send_all(client, 1);
	receive_all(server, 1);
	send_all(server, 1);
	receive_all(client, 1);
}

/* Receives a datagram, and connects another socket of that namespace from the address at which it came to its sender. */
static void answer_to_sender(int receiver, int made)
{
	struct sockaddr_storage peer, here;
	socklen_t length = sizeof here;
	char space[256];
	struct iovec part = {bytes, PIECE};
	struct msghdr message = {.msg_name = &peer, .msg_namelen = sizeof peer, .msg_iov = &part, .msg_iovlen = 1};
	message.msg_control = space, message.msg_controllen = sizeof space;
	if (recvmsg(receiver, &message, 0) != 1 || getsockname(receiver, (void *)&here, &length))
		fail("datagram");
	for (struct cmsghdr *each = CMSG_FIRSTHDR(&message); each; each = CMSG_NXTHDR(&message, each))
		if (each->cmsg_level == IPPROTO_IPV6)
			((struct sockaddr_in6 *)&here)->sin6_addr = ((struct in6_pktinfo *)CMSG_DATA(each))->ipi6_addr;
		else
			((struct sockaddr_in *)&here)->sin_addr = ((struct in_pktinfo *)CMSG_DATA(each))->ipi_addr;
	close(receiver);
	adjust(made, SOCK_DGRAM);
	if (bind(made, (void *)&here, length) || connect(made, (void *)&peer, message.msg_namelen))
		fail("answers");
}

static struct way begin(char *text)
{
	char *client = strtok(text, ","), *server = strtok(NULL, ","), *address = strtok(NULL, ",");
	char *tcp = strtok(NULL, ","), *udp = strtok(NULL, ",");
	const char *any;
	struct way made;
	int listener, receiver;
	if (!udp) {
		fprintf(stderr, "established: CLIENT,SERVER,ADDRESS,TCP_PORT,UDP_PORT\n");
		exit(2);
	}
	any = strchr(address, ':') ? "::" : "0.0.0.0";
	enter(server);
	receiver = opened(any, UDP_PORT, SOCK_DGRAM, 0);
	made.received = socket(strchr(address, ':') ? AF_INET6 : AF_INET, SOCK_DGRAM, 0);
	listener = opened(any, TCP_PORT, SOCK_STREAM, 0);
	if (listen(listener, 1))
		fail("listen");
	enter(client);
	made.datagrams = opened(address, atoi(udp), SOCK_DGRAM, 1);
	made.stream = opened(address, atoi(tcp), SOCK_STREAM, 1);
	if ((made.accepted = accept(listener, NULL, NULL)) < 0)
		fail("accept");
	adjust(made.accepted, SOCK_STREAM);
	close(listener);
	send_all(made.datagrams, 1);
	answer_to_sender(receiver, made.received);
	send_all(made.received, 1);
	receive_all(made.datagrams, 1);
	return made;
}

/* Nanoseconds of one of `count`; of a stream, of a kilobyte. */
static double measure(const struct way *way, int kind, int count)
{
	double began = now(), took;
	for (int each = 0; each < count; each++)
		if (kind == 0)
			send(way->datagrams, bytes, DATAGRAM, 0);
		else if (kind == 1)
			request(way->stream, way->accepted);
		else {
			send_all(way->stream, PIECE);
			receive_all(way->accepted, PIECE);
		}
	if (kind == 0)
		for (int each = 0; each < count; each++)
			if (recv(way->received, bytes, PIECE, 0) != DATAGRAM)
				fail("a datagram was lost");
	took = (now() - began) / count;
	return kind == 2 ? took / (PIECE / 1024) : took;
}

int main(int argc, char **argv)
{
	if (argc < 5 || argc > 4 + MOST_WAYS) {
		fprintf(stderr, "usage: established CLOCK ROUNDS COUNT CLIENT,SERVER,ADDRESS,TCP_PORT,UDP_PORT...\n");
		return 2;
	}
	int ways = argc - 4, rounds = atoi(argv[2]), count = atoi(argv[3]);
	double *times = calloc((size_t)KINDS * ways * rounds, sizeof *times);
	struct way all[MOST_WAYS];
	if (!strcmp(argv[1], "wall"))
		clock_used = CLOCK_MONOTONIC;
	for (int way = 0; way < ways; way++)
		all[way] = begin(argv[4 + way]);
	/* A UDP flow is assured, and may be offloaded, when it has gone on for two seconds. */
	for (int tenth = 0; tenth < 30; tenth++) {
		for (int way = 0; way < ways; way++) {
			request(all[way].datagrams, all[way].received);
			request(all[way].stream, all[way].accepted);
		}
		usleep(100000);
	}
	/* Other work would leave its own data in the processor's caches between two rounds. Where interrupts have time of their own, they have
	 * a thread of their own, too, which must get the processor. */
	struct sched_param ahead = {.sched_priority = 1};
	if (clock_used == CLOCK_THREAD_CPUTIME_ID)
		sched_setscheduler(0, SCHED_FIFO, &ahead);
	for (int turn = 0; turn < rounds * ways; turn++) {
		/* Each round begins with another router, so that none always comes behind the same. */
		int round = turn / ways, way = (turn + round) % ways;
		for (int kind = 0; kind < KINDS; kind++)
			times[(kind * ways + way) * rounds + round] = measure(&all[way], kind, kind == 2 ? count / 8 : count);
	}
	for (int way = 0; way < ways; way++)
		for (int kind = 0; kind < KINDS; kind++) {
			double *of = times + (size_t)(kind * ways + way) * rounds;
			qsort(of, rounds, sizeof *of, compare);
			printf("%.1f%c", of[rounds / 2], kind == KINDS - 1 ? '\n' : ' ');
		}
	return 0;
}
