package copies

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Copy copies a source to a target, if there is room for it. setID and warn are as for Target.Unpack and Source.Pack.
// When ctx ends, Copy returns its cause, but it waits for the target's file system, and for that of a source which is
// still measured.
func Copy(ctx context.Context, source *Source, target *Target, setID bool, warn func(string)) error {
	if err := target.checkRoom(ctx, source); err != nil {
		return fmt.Errorf("copy to %q: %w", target.path, err)
	}
	// Only the source warns: it leaves out what the target cannot make.
	read, write := io.Pipe()
	unhook := context.AfterFunc(ctx, func() { _ = read.CloseWithError(context.Cause(ctx)) })
	defer unhook()
	packed := make(chan error, 1)
	go func() {
		err := source.Pack(ctx, write, target.Name(), warn)
		_ = write.CloseWithError(err)
		packed <- err
	}()
	err := target.Unpack(read, setID, func(string) {})
	_ = read.CloseWithError(err)
	if cause := context.Cause(ctx); cause != nil {
		return cause // the source may be waiting for a file system
	}
	if packErr := <-packed; packErr != nil && !errors.Is(packErr, err) {
		return packErr
	}
	return err
}
