// SPDX-License-Identifier: GPL-2.0

//! First-in-first-out lists of indices, whose links stand with the indexed objects.

/// No index: the end of a list.
pub(crate) const NONE: u32 = u32::MAX;

/// A link of a list.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    next: u32,
    listed: bool,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            next: NONE,
            listed: false,
        }
    }
}

impl Link {
    /// Whether it is in a list.
    pub(crate) fn is_listed(&self) -> bool {
        self.listed
    }
}

/// Where the links of a list are found.
pub(crate) trait Links {
    /// The link of `index`, if there is such an index.
    fn link(&mut self, index: u32) -> Option<&mut Link>;
}

/// A list of indices, each of which is in it at most once.
#[derive(Clone, Copy)]
pub(crate) struct List {
    head: u32,
    tail: u32,
}

impl List {
    /// An empty list.
    pub(crate) const EMPTY: List = List {
        head: NONE,
        tail: NONE,
    };

    /// Whether nothing is in the list.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Appends `index`, if it is not in the list yet.
    #[inline]
    pub(crate) fn push_back(&mut self, links: &mut impl Links, index: u32) {
        match links.link(index) {
            Some(link) if !link.listed => {
                *link = Link {
                    next: NONE,
                    listed: true,
                }
            }
            _ => return,
        }
        match links.link(self.tail) {
            Some(tail) => tail.next = index,
            None => self.head = index,
        }
        self.tail = index;
    }

    /// Takes the first index.
    #[inline]
    pub(crate) fn pop_front(&mut self, links: &mut impl Links) -> Option<u32> {
        let index = self.head;
        let link = links.link(index)?;
        self.head = link.next;
        *link = Link::default();
        if self.head == NONE {
            self.tail = NONE;
        }
        Some(index)
    }

    /// Moves `index` to the front, if it is in this list.
    #[inline]
    pub(crate) fn move_to_front(&mut self, links: &mut impl Links, index: u32) {
        if self.head != index {
            self.move_up(links, index);
        }
    }

    /// Visits all indices in order.
    pub(crate) fn visit(&self, links: &mut impl Links, mut each: impl FnMut(u32)) {
        let mut next = self.head;
        while let Some(link) = links.link(next) {
            each(next);
            next = link.next;
        }
    }

    fn move_up(&mut self, links: &mut impl Links, index: u32) {
        match links.link(index) {
            Some(link) if link.listed => (),
            _ => return,
        }
        let mut rest = List::EMPTY;
        // The steps are as many as stand before it.
        while let Some(before) = self.pop_front(links) {
            if before == index {
                break;
            }
            rest.push_back(links, before);
        }
        let after = core::mem::replace(self, List::EMPTY);
        self.push_back(links, index);
        self.append(links, rest);
        self.append(links, after);
    }

    /// Puts all of `other` behind what is in this list. An index is in one of the two at most.
    pub(crate) fn append(&mut self, links: &mut impl Links, other: List) {
        if other.is_empty() {
            return;
        }
        match links.link(self.tail) {
            Some(tail) => tail.next = other.head,
            None => self.head = other.head,
        }
        self.tail = other.tail;
    }
}
