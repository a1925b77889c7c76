package translate

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"kurma.io/stager/cri/records"
)

// resolveTargets follows the image's symbolic links on the way to the targets: with a link from /var/run to /run, a
// mount at /var/run/secrets is inside the mount at /run. Outer mounts come first, because they cover the image's links.
func resolveTargets(binds []records.Bind, resolve func(string, []string) (string, error)) error {
	depth := func(b records.Bind) int { return strings.Count(path.Clean(b.Target), "/") }
	slices.SortStableFunc(binds, func(a, b records.Bind) int { return depth(a) - depth(b) })
	var mounted []string
	for i, b := range binds {
		target, err := resolve(b.Target, mounted)
		if err != nil {
			return fmt.Errorf("mount target %s: %w", b.Target, err)
		}
		binds[i].Target, mounted = target, append(mounted, target)
	}
	return nil
}

// treesOf puts each mount that is inside others into the outermost of these. The stager takes no mount inside another:
// the server composes such trees. Targets are those of resolveTargets. Trees are sorted by their targets, and inner
// mounts come after those around them.
func treesOf(binds []records.Bind) []records.Tree {
	binds = slices.Clone(binds)
	slices.SortStableFunc(binds, func(a, b records.Bind) int { return strings.Compare(a.Target, b.Target) })
	var trees []records.Tree
	for _, b := range binds {
		outer := slices.IndexFunc(trees, func(t records.Tree) bool { return strings.HasPrefix(b.Target, t.Target+"/") })
		if outer < 0 {
			trees = append(trees, records.Tree{Name: strconv.Itoa(len(trees)), Bind: b})
			continue
		}
		b.Target = strings.TrimPrefix(b.Target, trees[outer].Target+"/")
		trees[outer].Inner = append(trees[outer].Inner, b)
	}
	return trees
}
