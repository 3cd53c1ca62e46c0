package cpu

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"waybill/kernels"
)

// cache is paged KV memory, outside the Go heap:
// [layer][keys, values][block][kv head][the block's vectors of that head].
//
// Values lie as [offset][headDim]. Keys lie transposed, in strips of up to 16
// offsets, [headDim][width of strip]: a register then holds one element of 16
// keys, and every lane sums its own score in the order of headDim.
type cache struct {
	spec kernels.CacheSpec
	mem  memory
	// size is the bytes of an element; head is the elements of one head in one
	// block, layer those of keys or of values in a layer.
	size, head, layer int
	threads           int // to prefault with
}

// newCache maps the memory.
func newCache(spec kernels.CacheSpec, threads int) (*cache, error) {
	if err := checkCache(spec); err != nil {
		return nil, err
	}
	m, err := newMemory(spec.Bytes())
	if err != nil {
		return nil, fmt.Errorf("cpu: cache of %d blocks: %w", spec.NumBlocks, err)
	}
	// A step behind long contexts reads pieces of 2 KiB all over the cache.
	adviseHuge(m.bytes)
	head := spec.BlockSize * spec.HeadDim
	return &cache{
		spec: spec, mem: m, size: spec.DType.BlockBytes(),
		head: head, layer: spec.NumBlocks * spec.NumKVHeads * head, threads: threads,
	}, nil
}

// Spec returns what the cache was made from.
func (c *cache) Spec() kernels.CacheSpec { return c.spec }

// Prefault touches every page: 0.4 to 1 s per GiB with two threads. Left to steps, a
// block that is used for the first time touches a new large page in every layer, twice:
// the system clears up to 120 MiB within one step. That took 0.4 s instead of 0.05 at
// worst, and every 16th token of a stream that reached new memory came 10 ms late.
//
// More than there is would not end in an error but with the system stopping the process.
func (c *cache) Prefault() error {
	if n, ok := available(); ok && int64(len(c.mem.bytes)) > n {
		return fmt.Errorf("cpu: the KV cache takes %d MiB, but only %d MiB of memory are available", c.spec.Bytes()>>20, max(0, n)>>20)
	}
	const piece = 16 * hugePage
	var next atomic.Int64
	errs := make([]error, c.threads)
	var wg sync.WaitGroup
	for i := range c.threads {
		wg.Go(func() {
			for errs[i] == nil {
				at := int(next.Add(1)-1) * piece
				if at >= len(c.mem.bytes) {
					return
				}
				errs[i] = populate(c.mem.bytes[at:min(at+piece, len(c.mem.bytes))])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cpu: the system has no %d MiB for the KV cache: %w", c.spec.Bytes()>>20, err)
	}
	return nil
}

// Close gives the memory back.
func (c *cache) Close() error { return c.mem.close() }

// keyHead returns the element at which the keys of a block's head begin.
func (c *cache) keyHead(layer, kvHead, block int) int {
	if block < 0 || block >= c.spec.NumBlocks {
		panic(bug("cache block %d of %d", block, c.spec.NumBlocks))
	}
	return 2*layer*c.layer + (block*c.spec.NumKVHeads+kvHead)*c.head
}

// valueHead is keyHead for values.
func (c *cache) valueHead(layer, kvHead, block int) int {
	return c.keyHead(layer, kvHead, block) + c.layer
}

// strip returns, for an offset in a block, the element at which its key begins
// (from keyHead) and the distance between the key's elements.
func (c *cache) strip(offset int) (first, width int) {
	start := offset &^ (tileRows - 1)
	return start*c.spec.HeadDim + offset - start, min(tileRows, c.spec.BlockSize-start)
}

// address returns the address of element i.
func (c *cache) address(i int) pointer { return pointer(&c.mem.bytes[i*c.size]) }

// write stores the key and the value of one head at a slot. short is scratch
// memory for the narrowed key.
func (c *cache) write(k *kernelSet, short *[64]uint16, layer, kvHead, slot int, key, value []float32) {
	block, offset := slot/c.spec.BlockSize, slot%c.spec.BlockSize
	at, width := c.strip(offset)
	at += c.keyHead(layer, kvHead, block)
	to := c.valueHead(layer, kvHead, block) + offset*c.spec.HeadDim
	if c.spec.DType == kernels.F32 {
		all := c.mem.floats()
		copy(all[to:to+len(value)], value)
		for i, v := range key {
			all[at+i*width] = v
		}
		return
	}
	all := halvesOf(c.mem.bytes)
	k.narrow(all[to:to+len(value)], value, c.spec.DType)
	for len(key) > 0 {
		n := min(len(key), len(short))
		k.narrow(short[:n], key[:n], c.spec.DType)
		for i, v := range short[:n] {
			all[at+i*width] = v
		}
		key, at = key[n:], at+n*width
	}
}

// keyTile sets dst [headDim][16] to the keys of positions first to first+n of a
// sequence; the other lanes are left alone. It serves block sizes that are not a
// multiple of 16, where a tile has no place in one strip.
func (c *cache) keyTile(dst []float32, layer, kvHead int, blocks []int32, first, n int) {
	for lane := range n {
		p := first + lane
		at, width := c.strip(p % c.spec.BlockSize)
		at += c.keyHead(layer, kvHead, int(blocks[p/c.spec.BlockSize]))
		if c.spec.DType == kernels.F32 {
			all := c.mem.floats()
			for d := range c.spec.HeadDim {
				dst[d*tileRows+lane] = all[at+d*width]
			}
			continue
		}
		all := halvesOf(c.mem.bytes)
		for d := range c.spec.HeadDim {
			dst[d*tileRows+lane] = widen(all[at+d*width], c.spec.DType)
		}
	}
}
