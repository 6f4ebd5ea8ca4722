/* SPDX-License-Identifier: GPL-2.0 */
/* On-demand memory for the cases of odp. */
#ifndef TESTS_ODP_H
#define TESTS_ODP_H

#include "../common.h"

#define PAGE 4096ul
#define SIZE (64 * PAGE)
#define ACCESS (ACCESS_ALL | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

/* A connection, and on-demand memory of either end that nobody has touched. */
struct scene {
	struct pair p;
	uint8_t *mine, *theirs;
	struct ibv_mr *my_mr, *their_mr;
	struct peer to;
};

/* scene.c */
void *map_anonymous(size_t len);
/* Memory of a file that has no name, and the file. */
void *map_file(size_t len, int *fd);
/* An on-demand region. */
struct ibv_mr *reg(struct device *d, void *addr, size_t len, int access);
/* The connection alone. */
void scene_connect(struct scene *s);
void scene_open_on(struct scene *s, uint8_t *mine, uint8_t *theirs);
void scene_open(struct scene *s);
void scene_close(struct scene *s);
struct ibv_sge mine(const struct scene *s, size_t offset, size_t len);
/* A request from the start of one memory to that of the other. */
void request(struct scene *s, enum ibv_wr_opcode opcode, size_t len);
void receive(struct scene *s, size_t len);
/* Lets pages go, and with them the data of anonymous memory. */
void drop(void *addr, size_t len);

/* gone.c */
void unmapped(void);
void truncated(void);
void protected(void);
void read_only(void);
void receive_buffer(void);
void mapped_again(void);
void mapped_after_a_reset(void);
void secret(void);
/* kinds.c */
void datagrams(void);
void placement(void);
void extended(void);
/* storms.c */
void storms(void);
void registrations_in_a_storm(void);
void process_ends(void);
/* prefetch.c */
void prefetch(void);
/* long.c */
void long_prefetch_killed(void);
void long_prefetch_removed(void);
/* charged.c */
void charged(void);
/* served.c */
void served(void);
/* silent.c */
void silent_server(void);
/* figures.c */
void figures(void);

#endif /* TESTS_ODP_H */
