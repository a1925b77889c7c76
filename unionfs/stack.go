package unionfs

import (
	"context"
	"path/filepath"
)

// Stack is a root as directories to be stacked. A driver in another module has from it what
// the drivers of this package start with: checked paths, filtered layers, and a top
// directory with the attributes of the topmost layer's.
type Stack struct {
	// Lower are the layers, the topmost first: their own directories, or a copy
	// in Scratch of what a layer's Filter keeps.
	Lower []string

	// Upper, for the app's writes, is empty and has the attributes of the topmost layer's own
	// directory. Work is empty, too. They are beside each other in Scratch.
	Upper, Work string
}

// NewStack checks r, without changing the file system where it is wrong, and makes Upper, Work
// and the copies in r.Scratch. limit is the most layers that the driver takes, 0 for any number. An
// error names the path that is wrong; the driver adds the app and its own name. Unmount removes what
// r.Scratch holds, also after an error.
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
