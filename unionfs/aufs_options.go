package unionfs

import "strings"

// aufsBatch is the maximum number of branches of one call. aufs parses a call's options into one page
// of records. 82 branches fill the page: aufs refuses 83 with E2BIG, and more corrupt the kernel's
// memory.
const aufsBatch = 64

// aufsCall is one mount(2) call.
type aufsCall struct {
	options  string
	branches int // how many the call adds
}

// aufsCalls returns the calls that make a root. The first one mounts; each further call is a remount
// that appends branches at the bottom. An option text with its final zero byte fits into a page, which
// is all that mount(2) reads, and no call adds more than aufsBatch branches. (aufs(5), "br:" and
// "append:".)
//
// With dirperm1 only the writable branch decides a directory's permissions, so that chmod(2) in the
// root works.
func aufsCalls(upper string, layers []string, page int) []aufsCall {
	first, rest := fillCall("br:"+upper+"=rw", ":", ",dirperm1", layers, page)
	first.branches++ // upper
	calls := []aufsCall{first}
	for len(rest) > 0 {
		var next aufsCall
		// A remount adds at least one layer, even if its name is long.
		next, rest = fillCall("append:"+rest[0]+"=ro", ",append:", "", rest[1:], page)
		next.branches++
		calls = append(calls, next)
	}
	return calls
}

// fillCall returns a call, and the layers that are left for the next call. The call's options are head,
// then sep and a read-only branch for each layer that fits, at most aufsBatch-1, then tail.
func fillCall(head, sep, tail string, layers []string, page int) (aufsCall, []string) {
	var options strings.Builder
	options.WriteString(head)
	n := 0
	for ; n < min(len(layers), aufsBatch-1); n++ {
		branch := sep + layers[n] + "=ro"
		if options.Len()+len(branch)+len(tail)+1 > page {
			break
		}
		options.WriteString(branch)
	}
	return aufsCall{options.String() + tail, n}, layers[n:]
}
