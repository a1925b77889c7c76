package translate

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"kurma.io/stager/cri/records"
)

// treesOf puts each mount that is inside others into the outermost of these. The stager takes no mount inside another:
// the server composes such trees. Trees are sorted by their targets, and inner mounts come after those around them.
func treesOf(binds []records.Bind) []records.Tree {
	binds = slices.Clone(binds)
	for i := range binds {
		binds[i].Target = path.Clean(binds[i].Target)
	}
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
