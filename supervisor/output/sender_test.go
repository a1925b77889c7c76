package output

import (
	"os"
	"testing"
)

// A chunk is for 100 attachments, all of which write it.
func BenchmarkManyAttachments(b *testing.B) {
	log := newBacklog(newBacklogs())
	senders := make([]*sender, 100)
	for i := range senders {
		s := &sender{w: new(os.File), from: log, next: log.last, fail: func(error) {}}
		log.senders[s], log.all.senders[s] = struct{}{}, struct{}{}
		senders[i] = s
	}
	text := make([]byte, 1)
	for b.Loop() {
		log.add(text)
		for _, s := range senders {
			s.take()
		}
	}
}
