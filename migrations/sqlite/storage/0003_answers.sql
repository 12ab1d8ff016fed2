-- The answers to the last numbered writes (Fencing-Sequence) under the row's fence: the hash of the
-- fence, and for each answer the number, the answer, the resource's version and the hash of the
-- request. Null if no write had a number. An older server that runs meanwhile leaves them as they are;
-- under another fence, they are void.
alter table storage_resource add column answers text
    check (length(answers) between 33 and 2000 and answers not glob '*[^-0-9a-z: ]*');
