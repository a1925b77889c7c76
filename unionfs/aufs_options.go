package unionfs

import "strings"

// aufsBatch is the most branches of one call. aufs parses a call's options into
// one page of records of its own. 82 branches fill the page: 83 are refused with
// E2BIG, and more corrupt the kernel's memory.
const aufsBatch = 64

// aufsCall is one mount(2) call.
type aufsCall struct {
	options  string
	branches int // how many the call adds
}

// aufsCalls returns the calls that make a root: the first mounts, each further
// one is a remount that appends branches at the bottom. No option text is longer
// than a page with its closing zero byte, which is all that mount(2) reads, and no
// call adds more than aufsBatch branches. (aufs(5), "br:" and "append:".)
//
// dirperm1 lets the writable branch alone decide about a directory's
// permissions, so that chmod(2) in the root has its effect.
func aufsCalls(upper string, layers []string, page int) []aufsCall {
	first, rest := fillCall("br:"+upper+"=rw", ":", ",dirperm1", layers, aufsBatch-1, page)
	first.branches++ // upper
	calls := []aufsCall{first}
	for len(rest) > 0 {
		var next aufsCall
		// A remount takes one layer at least, whatever the length of its name.
		next, rest = fillCall("append:"+rest[0]+"=ro", ",append:", "", rest[1:], aufsBatch-1, page)
		next.branches++
		calls = append(calls, next)
	}
	return calls
}

// fillCall returns a call and the layers that it leaves to the next. Its options are
// head, then sep and a read-only branch for each layer that fits, most at most, then tail.
func fillCall(head, sep, tail string, layers []string, most, page int) (aufsCall, []string) {
	var options strings.Builder
	options.WriteString(head)
	n := 0
	for ; n < min(len(layers), most); n++ {
		branch := sep + layers[n] + "=ro"
		if options.Len()+len(branch)+len(tail)+1 > page {
			break
		}
		options.WriteString(branch)
	}
	return aufsCall{options.String() + tail, n}, layers[n:]
}
