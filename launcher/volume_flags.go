package main

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"kurma.io/stager/launcher/podplan"
	"kurma.io/stager/spec"

	"github.com/appc/spec/schema/types"
)

// volumeFlags collects --volume and --tmpfs.
type volumeFlags struct {
	named  map[string]string // paths of the host by the names of volumes
	mounts []podplan.Mount
}

// errWantVolume says what --volume takes.
var errWantVolume = errors.New("want VOLUME:/TARGET[:ro], /PATH:/TARGET[:ro] or NAME=/PATH")

// add adds a volume: VOLUME:/TARGET[:ro], /PATH:/TARGET[:ro] or NAME=/PATH.
func (v *volumeFlags) add(text string) error {
	if !utf8.ValidString(text) { // JSON would change it
		return errors.New("the path is not UTF-8")
	}
	if i := strings.IndexAny(text, ":="); i < 0 || strings.HasPrefix(text, "/") || text[i] == ':' {
		return v.addMount(text)
	}
	name, source, _ := strings.Cut(text, "=")
	if name == "" || !isPath(source) {
		return errWantVolume
	}
	if _, err := types.NewACName(name); err != nil {
		return fmt.Errorf("name %q: %w", name, err)
	}
	if _, twice := v.named[name]; twice {
		return fmt.Errorf("volume %q is given twice", name)
	}
	if v.named == nil {
		v.named = make(map[string]string)
	}
	v.named[name] = hostPath(source)
	return nil
}

// isPath says whether a source is a path of the host, absolute or relative, and not the name of a volume.
func isPath(source string) bool {
	first, _, _ := strings.Cut(source, "/")
	return first == "" && source != "" || first == "." || first == ".."
}

// hostPath returns the absolute path of a path that isPath, without symbolic links: a manifest has no other. The start
// reports what is wrong with a path that has none.
func hostPath(source string) string {
	abs, err := filepath.Abs(source)
	if err != nil {
		return source
	}
	found, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return abs
	}
	return found
}

// addMount reads VOLUME:/TARGET[:ro] or /PATH:/TARGET[:ro].
func (v *volumeFlags) addMount(text string) error {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 || !path.IsAbs(parts[1]) {
		return errWantVolume
	}
	m := podplan.Mount{Target: path.Clean(parts[1])}
	switch {
	case isPath(parts[0]):
		m.Source = hostPath(parts[0])
	case podplan.IsName(parts[0]):
		m.Volume = parts[0]
	default:
		return fmt.Errorf("%s is neither a path, which begins with / or ./, nor the name of a volume: %w",
			quoted(parts[0]), podplan.ErrName)
	}
	if len(parts) == 3 {
		for option := range strings.SplitSeq(parts[2], ",") {
			switch option {
			case "ro":
				m.ReadOnly = true
			case "rw", "z", "Z": // z and Z ask for labels of SELinux, which no pod has
			default:
				return fmt.Errorf("%s: want ro or rw", quoted(option))
			}
		}
	}
	return v.mount(m)
}

// anyoneWrites is the mode of /tmp.
const anyoneWrites = "1777"

// addEmpty adds an empty folder: /TARGET[:mode=MODE].
func (v *volumeFlags) addEmpty(text string) error {
	target, option, more := strings.Cut(text, ":")
	if !path.IsAbs(target) || !utf8.ValidString(target) {
		return errors.New("want /TARGET[:mode=MODE]")
	}
	m := podplan.Mount{Target: path.Clean(target), Mode: anyoneWrites}
	if more {
		mode, ok := strings.CutPrefix(option, "mode=")
		if _, err := strconv.ParseUint(mode, 8, 12); !ok || err != nil {
			return fmt.Errorf("%s: want mode=MODE, octal; the folder is on the disk and has no other option", quoted(option))
		}
		m.Mode = mode
	}
	return v.mount(m)
}

func (v *volumeFlags) mount(m podplan.Mount) error {
	for _, other := range v.mounts {
		switch {
		case other.Target == m.Target:
			return fmt.Errorf("target %s is given twice", quoted(m.Target))
		case spec.Inside(m.Target, other.Target):
			return nested(m.Target, other.Target)
		case spec.Inside(other.Target, m.Target):
			return nested(other.Target, m.Target)
		}
	}
	v.mounts = append(v.mounts, m)
	return nil
}

func nested(inner, outer string) error {
	return fmt.Errorf("target %s is inside the target %s of another volume; mounts cannot be nested",
		quoted(inner), quoted(outer))
}
