package supervisor

// For tests that run pods of real processes, in a package that may import supervisortest.
const RefusedMove = refusedMove

// SessionOf is sessionOf.
func SessionOf(pid int) int {
	session, err := sessionOf(pid)
	if err != nil {
		return -1
	}
	return session
}

// PID is the process of a session.
func (s *Session) PID() int { return s.pid }

// SetPID sets it.
func (s *Session) SetPID(pid int) { s.pid = pid }

// StopAsked is closed when the pod has been asked to stop.
func (p *Supervisor) StopAsked() <-chan struct{} { return p.stop.asked }

// ForceState sets an app's state, whatever the diagram says.
func (p *Supervisor) ForceState(name string, state State) {
	a, err := p.find(name)
	if err != nil {
		panic(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.State = state
}

// TakeCommandSlots takes all slots for commands of an app's run, as by starts that hang.
func (p *Supervisor) TakeCommandSlots(name string) {
	a, err := p.find(name)
	if err != nil {
		panic(err)
	}
	a.mu.Lock()
	slots := a.run.slots
	a.mu.Unlock()
	for range parallelCommands {
		slots <- struct{}{}
	}
}
