package crilog

import (
	"bytes"
	"fmt"
	"testing"
)

// chunks by the shape of what one read of a pipe returns.
func benchmarkChunks() map[string][]byte {
	line := append(bytes.Repeat([]byte("x"), 99), '\n')
	return map[string][]byte{
		"one line of 100":      line,
		"4 KiB":                bytes.Repeat(line, 41),
		"64 KiB":               bytes.Repeat(line, 655),
		"64 KiB without lines": bytes.Repeat([]byte("x"), 64<<10),
		"64 KiB of newlines":   bytes.Repeat([]byte("\n"), 64<<10),
	}
}

func BenchmarkAppend(b *testing.B) {
	for name, chunk := range benchmarkChunks() {
		b.Run(name, func(b *testing.B) {
			w, err := Open(b.TempDir(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer w.Close()
			b.SetBytes(int64(len(chunk)))
			b.ReportAllocs()
			for b.Loop() {
				w.Append(Stdout, chunk)
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	dir := b.TempDir()
	w, err := Open(dir, Options{MaxSize: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	chunk := benchmarkChunks()["64 KiB"]
	for range 200 {
		w.Append(Stdout, chunk)
	}
	for _, tail := range []int{-1, 10} {
		b.Run(fmt.Sprintf("tail %d", tail), func(b *testing.B) {
			if tail < 0 {
				b.SetBytes(int64(200 * len(chunk)))
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := Read(b.Context(), dir, ReadOptions{Tail: tail}, func(Entry) error { return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
