package sources

import (
	"context"
	"io"
	"os"
	"runtime/debug"

	"kurma.io/stager/launcher/images"

	"golang.org/x/sync/semaphore"
)

// Memory bounds what the imports of one process keep in memory together of what servers send. It is held for work on
// this machine alone: no server can make others wait. The zero value bounds nothing; nil is the same.
type Memory struct {
	documents *semaphore.Weighted // of documents, each of up to maxConfig bytes, that are parsed
	layers    *semaphore.Weighted // of bytes that decoders of layers may take
}

// The memory of layers that are converted, in bytes: of all in a process, of one whose decoder has a window that the
// layer chooses, and of any other.
const (
	layerMemory  = 48 << 20
	largeDecoder = layerMemory
	smallDecoder = 4 << 20
)

// NewMemory returns the bounds of a process that imports several images at once: it parses one document at a time, and
// converts a layer of Zstandard or xz alone, or up to twelve others.
func NewMemory() *Memory {
	return &Memory{documents: semaphore.NewWeighted(1), layers: semaphore.NewWeighted(layerMemory)}
}

// document waits until a document may be parsed, which release ends.
func (m *Memory) document(ctx context.Context) (release func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	if err := m.documents.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { m.documents.Release(1) }, nil
}

// layer waits until a layer of a file may be converted, which release ends. It leaves the file, which may be anywhere,
// at its start.
func (m *Memory) layer(ctx context.Context, file io.ReadSeeker) (release func(), err error) {
	if m == nil {
		return func() {}, nil
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	var decoder int64 = smallDecoder
	if images.ChoosesMemory(file) {
		decoder = largeDecoder
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if err := m.layers.Acquire(ctx, decoder); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() {
		if decoder == largeDecoder {
			debug.FreeOSMemory() // or the next such decoder would add to the garbage of this one
		}
		m.layers.Release(decoder)
	}, nil
}

// keptDocument is a document of an image in a file without a name. It is read as often as it is needed: it takes no
// memory while layers are downloaded.
type keptDocument struct {
	ctx    context.Context //nolint:containedctx // of the import
	open   blobs
	memory *Memory

	file *os.File
}

// reopen opens the document as blobs does. Done lets the next one be parsed.
func (k *keptDocument) reopen(what, digest string, size int64) (*os.File, func(), error) {
	if k.file == nil {
		file, _, err := k.open(what, digest, size)
		if err != nil {
			return nil, nil, err
		}
		_ = os.Remove(file.Name()) // so that another import of the document does not wait for the end of this one
		k.file = file
	}
	release, err := k.memory.document(k.ctx)
	if err != nil {
		return nil, nil, err
	}
	if _, err := k.file.Seek(0, io.SeekStart); err != nil {
		release()
		return nil, nil, err
	}
	return k.file, release, nil
}

func (k *keptDocument) close() {
	if k.file != nil {
		_ = k.file.Close()
	}
}
