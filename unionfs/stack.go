package unionfs

import (
	"context"
	"path/filepath"
)

// Stack is a root as a list of directories to stack. It offers to a driver in another module what the
// drivers of this package start with: checked paths, filtered layers, and a top directory with the
// attributes of the topmost layer's.
type Stack struct {
	// Lower are the layers, the topmost first: their own directories, or a copy
	// in Scratch of what a layer's Filter keeps.
	Lower []string

	// Upper is for the app's writes. It is empty and has the attributes of the topmost layer's own
	// directory. Work is also empty. Both are in Scratch.
	Upper, Work string
}

// NewStack checks r, and makes Upper, Work and the copies in r.Scratch. If r is invalid, NewStack does
// not change the file system. limit is the maximum number of layers of the driver, 0 for any number.
// An error names the invalid path; the driver adds the app and its own name. After an error r.Scratch
// may hold files.
func NewStack(ctx context.Context, r Root, limit int) (Stack, error) {
	s := Stack{Upper: filepath.Join(r.Scratch, "upper"), Work: filepath.Join(r.Scratch, "work")}
	r, err := prepare(r, limit)
	if err != nil {
		return s, err
	}
	if err := makeDir(s.Upper, 0o755); err != nil {
		return s, err
	}
	if err := makeDir(s.Work, 0o700); err != nil {
		return s, err
	}
	if s.Lower, err = filteredDirs(ctx, r); err != nil {
		return s, err
	}
	return s, topAttributes(s.Upper, r.Layers[0])
}
