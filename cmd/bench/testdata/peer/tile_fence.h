// Included before every file of the peer. GCC 12 lets the stores that fill a tile
// or its configuration move past the instruction that reads them, since its
// intrinsics do not name that memory; the first load then faults. These do.
#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
#undef _tile_loadconfig
#undef _tile_loadd
#define _tile_loadconfig(from) __asm__ volatile("ldtilecfg %0" : : "m"(*(const char(*)[64])(from)) : "memory")
#define _tile_loadd(tile, from, stride) PEER_TILE_LOAD(tile, from, stride)
#define PEER_TILE_LOAD(tile, from, stride) \
	__asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile : : "r"((const void *)(from)), "r"((long)(stride)) : "memory")
#endif
